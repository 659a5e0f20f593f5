"""Check that tests with Podman and on a cluster run the engine of the working tree."""

from pathlib import Path

import pytest

from ce_sandbox.installed import is_current
from ce_sandbox.layout import Layout


def require_current(directory: Path) -> None:
    """Fail unless the sandbox in `directory` has the engine of this tree."""
    layout = Layout(directory)
    if not is_current(layout):
        pytest.fail(
            f"{layout.prefix}: not the engine of this working tree (make sandbox-engine)",
            pytrace=False,
        )
