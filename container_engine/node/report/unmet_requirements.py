"""Refuse a start because of all that this node lacks for it, in one error.

Imported only if something is lacking.
"""

from __future__ import annotations

from container_engine.base.errors import LaunchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from container_engine.node.plan_types import HookUse

_MOST_LINES = 40


def refuse(unmet: Sequence[tuple[str, LaunchError]], hooks: Sequence[HookUse] = ()) -> None:
    """Raise one LaunchError for all errors in `unmet`; return if there are none.

    Each error comes with the name of the one of `hooks` that needs what is missing, "" for the
    environment.
    """
    errors = [error for _hook, error in unmet]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        message, *also = map(_with_remedy, errors)
        if len(also) > _MOST_LINES:
            also[_MOST_LINES:] = [f"and {len(also) - _MOST_LINES} more"]
        raise LaunchError(
            message, see=errors[0].see, hint=_remedies(unmet, hooks), also=tuple(also)
        )


def _with_remedy(error: LaunchError) -> str:
    """Return the message, with the remedy of a failed check; all others' are in the hint."""
    return f"{error} ({error.hint})" if error.see == "hook-check" and error.hint else str(error)


def _remedies(unmet: Sequence[tuple[str, LaunchError]], hooks: Sequence[HookUse]) -> str:
    from container_engine.faults import hook_switches, remedies

    found = [remedies.remedy(error.see, error.hint) for hook, error in unmet if not hook]
    lacking = {hook for hook, _error in unmet}
    switches = [hook.get("switch", "") for hook in hooks if hook["name"] in lacking]
    return "; ".join(
        dict.fromkeys([*found, *([hook_switches.leave_out(switches)] if switches else [])])
    )
