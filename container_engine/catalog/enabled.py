"""Finds the hooks that a set of annotations enables, and the order of application. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from container_engine.faults.hook_switches import turn_on

if TYPE_CHECKING:
    from container_engine.catalog.load import Hook
    from container_engine.catalog.model import HookFile


TRUE = "true"
AUTOMATIC = "automatic"
REQUIRED = "required"


class Active(NamedTuple):
    """A hook that will be applied. `asked` is the annotation that enables it, or "".

    `when` has the conditions of an automatic hook, of which one must hold on the node. If it is
    empty, the hook always applies; if it is None, the hook is not automatic.
    """

    hook: Hook
    reason: str
    asked: str
    when: tuple[str, ...] | None = None


class Refusal(NamedTuple):
    """A reason to refuse the hooks, or a warning.

    `key` is the annotation at fault. If it is not written in a file, `asked` is the annotation
    that enables the hook, whose line is reported instead.
    """

    key: str
    message: str
    hint: str | None = None
    is_error: bool = True
    asked: str = ""


def match(
    hooks: Mapping[str, Hook], annotations: Mapping[str, str]
) -> tuple[list[Active], list[Refusal]]:
    """Return the hooks enabled by annotation, default or implication, and the refusals.

    The hooks are in order of application.
    """
    refusals: list[Refusal] = []
    active: dict[str, Active] = {}
    for hook in hooks.values():
        found = _enabled(hook, annotations)
        if hook.data.default == REQUIRED and not hook.data.turned_off and not found:
            message = f"the site requires the hook '{hook.name}'"
            refusals.append(Refusal(hook.switch, message, f"remove the line: {hook.file} says so"))
        if found and hook.data.turned_off and found.asked:
            message = f"the hook '{hook.name}' is turned off at this site"
            refusals.append(Refusal(found.asked, message, f"{hook.file} says so"))
        elif found and not hook.data.turned_off:
            active[hook.name] = found
    _imply(hooks, annotations, active, refusals)
    for one in active.values():
        refusals.extend(_conflicts(one, active))
        refusals.extend(_missing(one, active, hooks))
    names = in_order({name: one.hook for name, one in active.items()})
    return [active[name] for name in names], refusals


def _enabled(hook: Hook, annotations: Mapping[str, str]) -> Active | None:
    value = annotations.get(hook.switch)
    if value is not None:
        return Active(hook, hook.switch, hook.switch) if value == TRUE else None
    for name, parameter in hook.data.parameters.items():
        key = f"{hook.annotation}.{name}"
        if parameter.enables and key in annotations:
            return Active(hook, key, key)
    reasons = {"on": "on by default", "automatic": AUTOMATIC, REQUIRED: "required by the site"}
    reason = reasons.get(hook.data.default)
    return Active(hook, reason, "", conditions(hook)) if reason else None


def conditions(hook: Hook) -> tuple[str, ...] | None:
    """Return the conditions of a hook that is automatic, else None (see Active)."""
    return hook.data.automatic_when if hook.data.default == AUTOMATIC else None


def _imply(
    hooks: Mapping[str, Hook],
    annotations: Mapping[str, str],
    active: dict[str, Active],
    refusals: list[Refusal],
) -> None:
    """Add implied hooks to `active`, transitively. A cycle of `implies` does no harm here.

    What an automatic hook implies is applied on the nodes where that hook is.
    """
    waiting = list(active.values())
    while waiting:
        one = waiting.pop(0)
        for name in one.hook.data.implies:
            other, known = hooks.get(name), active.get(name)
            if other is None:
                continue
            refusal = _left_out(other, one, annotations) if known is None else None
            if refusal:
                refusals.extend([] if refusal in refusals else [refusal])
                continue
            when = one.when if known is None else _either(known.when, one.when)
            if known is None or when != known.when:
                active[name] = Active(other, f"implied by {one.hook.name}", one.asked, when)
                waiting.append(active[name])


def _left_out(other: Hook, one: Active, annotations: Mapping[str, str]) -> Refusal | None:
    """Return why the hook `other`, which `one` implies, is not applied; None if it is."""
    if other.data.turned_off or other.switch not in annotations:
        return _needs_turned_off(one, other)
    # disabled by the user: the hook that implies it may not work, but may still be wanted
    value = annotations[other.switch]
    message = f"'{value}', so the hook '{other.name}' is left out, which {one.hook.name} needs"
    return Refusal(other.switch, message, "remove the line", is_error=False)


def _either(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return conditions that hold where those of `one` or of `other` do."""
    if one is None or other is None:
        return None
    return tuple(dict.fromkeys((*one, *other))) if one and other else ()


def _conflicts(one: Active, active: Mapping[str, Active]) -> list[Refusal]:
    return [
        Refusal(
            one.asked, f"cannot be used together with the hook '{name}' ({active[name].reason})"
        )
        for name in one.hook.data.conflicts
        if name in active
    ]


def _missing(
    one: Active, active: Mapping[str, Active], hooks: Mapping[str, Hook]
) -> Iterator[Refusal]:
    """Yield a refusal for each hook that the user must have enabled and has not."""
    for name in one.hook.data.requires.hooks:
        if name in active:
            continue
        other = hooks.get(name)
        hint = turn_on(other.switch) if other else None
        off = _needs_turned_off(one, other) if other else None
        yield off or Refusal(one.asked, f"needs the hook '{name}'", hint)


def _needs_turned_off(one: Active, other: Hook) -> Refusal | None:
    if not other.data.turned_off:
        return None
    message = f"needs the hook '{other.name}', which is turned off at this site"
    return Refusal(one.asked, message, f"{other.file} says so")


def applied_before(data: HookFile) -> dict[str, tuple[str, ...]]:
    """Return the hooks that are applied before the hook with this data, by the key naming them."""
    return {"implies": data.implies, "after": data.after, "requires.hooks": data.requires.hooks}


def in_order(hooks: Mapping[str, Hook]) -> list[str]:
    """Return the names of the hooks as they are applied: by what goes before each, then by name.

    A cycle is a fault of the catalog, which plan/catalog_faults.py reports.
    """
    ordered: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in ordered or name in above:
            return
        before = {other for named in applied_before(hooks[name].data).values() for other in named}
        for other in sorted(before & hooks.keys()):
            visit(other, (*above, name))
        ordered.append(name)

    for name in sorted(hooks):
        visit(name, ())
    return ordered
