import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def as_nobody() -> Callable[[Path], None]:
    """Return a function that gives a file to another user; skip the test without root."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    return lambda path: os.chown(path, 65534, 65534)
