"""Replace `{node.NAME}` in the strings of a hook with values that only the node knows."""

from __future__ import annotations

import os

from container_engine.errors import LaunchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.node.plan_types import HookUse

BEGIN, _END = "{node.", "}"
_VARIABLES = {
    "user": "USER",
    "home": "HOME",
    "job": "SLURM_JOB_ID",
    "step": "SLURM_STEP_ID",
    # the plugin passes it to the launcher; absent without Slurm
    "spool": "CE_SPOOL_DIR",
}


def fill(text: str, hook: HookUse, node: Mapping[str, str]) -> str:
    """Return the text with each `{node.NAME}` replaced.

    Raise LaunchError for a field that this step does not have.
    """
    if BEGIN not in text:
        return text
    before, _begin, rest = text.partition(BEGIN)
    name, end, after = rest.partition(_END)
    if not end:
        return text
    value = _value(name, node)
    if value is None:
        raise LaunchError(
            f"hook {hook['name']}: '{text}' needs {{node.{name}}}, which this step does not have"
            f" ({hook['file']})",
            see="hook-file-missing",
        )
    return before + value + fill(after, hook, node)


def leave_out(*names: str) -> str:
    """Return the remedy for a node that lacks something these hooks need."""
    keys = ", ".join(f'com.hooks.{name}.enabled = "false"' for name in names)
    what, hooks = ("it", "hook") if len(names) == 1 else ("all of it", "hooks")
    return f"choose nodes that have {what}, ask the administrator, or leave the {hooks} out: {keys}"


def known(text: str, node: Mapping[str, str]) -> bool:
    """Check whether this step has every field that `fill` would look up."""
    names = (part.partition(_END)[0] for part in text.split(BEGIN)[1:])
    return all(_value(name, node) is not None for name in names)


def _value(name: str, node: Mapping[str, str]) -> str | None:
    if name in _VARIABLES:
        return node.get(_VARIABLES[name])
    if name == "uid":
        return str(os.getuid())
    if name == "gid":
        return str(os.getgid())
    if name == "arch":
        return os.uname().machine
    if name == "host":
        return node.get("SLURMD_NODENAME") or os.uname().nodename
    return node.get(name)
