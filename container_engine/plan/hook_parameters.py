"""Checks and completes parameters of a hook that depend on others or on directories. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from container_engine.base.text_layout import did_you_mean, natural, nearest
from container_engine.catalog.enabled import Active, Refusal
from container_engine.catalog.values import Values, in_words
from container_engine.faults.hook_switches import turn_on

if TYPE_CHECKING:
    from container_engine.catalog.load import Hook
    from container_engine.catalog.model import Parameter

    # the names in a directory, or None if it cannot be read here; it may still exist on the nodes

Entries: TypeAlias = Callable[[str], Sequence[str] | None]

LATEST = "latest"
_SHOWN = 20


def settle(
    active: Active, values: Values, annotations: Mapping[str, str], entries: Entries
) -> list[Refusal]:
    """Replace `latest` with a real name in `values`, and return the problems of the parameters."""
    hook = active.hook
    refusals = []
    for name, parameter in hook.data.parameters.items():
        key = f"{hook.annotation}.{name}"
        if not values.holds(hook, parameter.when):
            if key in annotations:
                message = f"has no effect, it is only used if {in_words(parameter.when)}"
                remedy = _remedy(hook, parameter, values)
                refusals.append(Refusal(key, message, remedy, is_error=False))
        elif parameter.required and not annotations.get(key):
            message = f"the hook '{hook.name}' needs it, and it is not set: {parameter.help}"
            hint = f'write {key} = "..."'
            refusals.append(Refusal(key, message, hint, asked=active.asked))
        elif parameter.values_in and (refusal := _chosen(active, name, values, entries)):
            refusals.append(refusal)
    return refusals


def idle(hook: Hook, annotations: Mapping[str, str]) -> Iterator[Refusal]:
    """Yield warnings of parameters of a hook that is not applied, unless its switch is set."""
    if hook.switch in annotations:
        return
    for name in (*hook.data.parameters, *hook.data.allow):
        key = f"{hook.annotation}.{name}"
        if key in annotations:
            message = f"has no effect, the hook '{hook.name}' is off"
            yield Refusal(key, message, turn_on(hook.switch), is_error=False)


def _remedy(hook: Hook, parameter: Parameter, values: Values) -> str | None:
    """Return the remedy that gives the parameter an effect, None if no single line does."""
    if len(parameter.when) != 1:
        return None
    ((name, value),) = parameter.when.items()
    key = values.annotation(hook, name)
    return f'write {key} = "{value}"' if key and isinstance(value, str) else None


def _chosen(active: Active, name: str, values: Values, entries: Entries) -> Refusal | None:
    """Return a refusal of a value that is not an entry of its directory, if that can be read here.

    Replace `latest`.
    """
    hook = active.hook
    directory = values.text(hook, hook.data.parameters[name].values_in)
    known = entries(directory)
    value = values.look_up(hook, name) or ""
    if known is None or value in known:
        return None
    if value == LATEST and known:
        values.choose(hook, name, max(known, key=natural))
        return None
    suggestion = did_you_mean(nearest(value, known))
    shown = sorted(known, key=natural, reverse=True)[:_SHOWN]
    message = f"there is no '{value}' in {directory}{suggestion}"
    hint = f"there are {', '.join(shown)}" if shown else "the directory is empty"
    return Refusal(f"{hook.annotation}.{name}", message, hint, asked=active.asked)
