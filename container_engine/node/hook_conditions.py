"""Decide which hooks of a plan apply in a step."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from container_engine.node.plan_types import HookUse


def may_apply(hook: HookUse, node: Mapping[str, str]) -> bool:
    """Check cheaply whether a hook may apply.

    Automatic hooks are in every plan; without their variables they must cost nothing.
    """
    conditions = hook.get("automatic_when")
    return not conditions or any(word.partition("=")[0] in node for word in conditions)


def applies(hook: HookUse, node: Mapping[str, str]) -> bool:
    """Check whether a hook applies: it has no conditions, or one of them holds."""
    conditions: Sequence[str] | None = hook.get("automatic_when")
    return not conditions or any(holds(condition, node) for condition in conditions)


def holds(condition: str, node: Mapping[str, str]) -> bool:
    """Check whether the step has the variable NAME, or one whose value matches NAME=pattern."""
    name, equals, pattern = condition.partition("=")
    if name not in node or not equals:
        return name in node
    from container_engine.node.pattern import matches

    return matches(node[name], pattern)
