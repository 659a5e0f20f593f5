"""Programs that the OCI runtime runs for a hook, as oci-hooks(5) wants them said. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def definition(hook: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a file for Podman's --hooks-dir, from an entry of CDI's containerEdits."""
    program: dict[str, Any] = {"path": hook["path"]}
    for key in ("args", "env", "timeout"):
        if hook.get(key):
            program[key] = hook[key]
    return {
        "version": "1.0.0",
        "hook": program,
        "when": {"always": True},
        "stages": [hook["hookName"]],
    }
