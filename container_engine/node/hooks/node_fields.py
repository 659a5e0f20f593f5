"""Replace `{node.NAME}` in the strings of a hook with values that only the node knows."""

from __future__ import annotations

import os

from container_engine.base.errors import LaunchError

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
        needs = f"'{text}' needs {{node.{name}}}, which this step does not have"
        raise missing(hook, f"{needs} ({hook['file']})")
    return before + value + fill(after, hook, node)


def missing(hook: HookUse, reason: str) -> LaunchError:
    """Return the error for something that this hook needs and this node or step lacks."""
    from container_engine.faults.hook_switches import leave_out

    remedy = leave_out([hook.get("switch", "")])
    return LaunchError(reason, remedy, "hook-file-missing", where=f"hook {hook['name']}")


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
