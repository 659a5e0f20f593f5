"""`{node.NAME}` in the strings of a hook: what only the node knows."""

from __future__ import annotations

import os

from container_engine.launch.failure import LaunchError
from container_engine.launch.hooks.pattern import matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_BEGIN, _END = "{node.", "}"


def fill(text: str, hook: Mapping[str, Any], node: Mapping[str, str]) -> str:
    """The text with each `{node.NAME}` replaced: uid, gid, name and arch of the node, else the
    step's variable NAME. Raises LaunchError for a variable that the step does not have.
    """
    if _BEGIN not in text:
        return text
    before, _begin, rest = text.partition(_BEGIN)
    name, end, after = rest.partition(_END)
    if not end:
        return text
    return before + _value(name, hook, node) + fill(after, hook, node)


def _value(name: str, hook: Mapping[str, Any], node: Mapping[str, str]) -> str:
    if name == "uid":
        return str(os.getuid())
    if name == "gid":
        return str(os.getgid())
    if name == "arch":
        return os.uname().machine
    if name == "name":
        return node.get("SLURMD_NODENAME") or os.uname().nodename
    if name not in node:
        raise LaunchError(
            f"hook {hook['name']}: the variable {name} does not exist in this step, and the hook"
            f" needs it ({hook['file']})"
        )
    return node[name]


def applies(hook: Mapping[str, Any], node: Mapping[str, str]) -> bool:
    """Whether an automatic hook finds what it is for; others always apply."""
    conditions: Sequence[str] | None = hook.get("automatic_when")
    return not conditions or any(_holds(condition, node) for condition in conditions)


def _holds(condition: str, node: Mapping[str, str]) -> bool:
    name, equals, pattern = condition.partition("=")
    return name in node and (not equals or matches(node[name], pattern))
