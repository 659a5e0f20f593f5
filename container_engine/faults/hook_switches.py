"""Words remedies that turn a hook on or off by its own annotation. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def turn_on(switch: str) -> str:
    return f'write {switch} = "true"'


def turn_off(switch: str) -> str:
    return f'{switch} = "false"'


def leave_out(switches: Sequence[str]) -> str:
    """Return the remedy for a node that lacks something the hooks with these annotations need.

    An annotation is "" if the hook cannot be turned off.
    """
    what, hooks = ("it", "hook") if len(switches) == 1 else ("all of it", "hooks")
    if not all(switches):
        return f"choose nodes that have {what}, or ask the administrator"
    off = ", ".join(map(turn_off, switches))
    return f"choose nodes that have {what}, ask the administrator, or leave the {hooks} out: {off}"
