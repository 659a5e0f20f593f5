"""Checks that the hooks of a catalog fit together, for `ce hooks check` and each launch. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from container_engine.base import run_check
from container_engine.base.run_check import RunCheck
from container_engine.base.text_layout import nearest
from container_engine.base.toml_positions import Fault
from container_engine.catalog.enabled import applied_before
from container_engine.catalog.load import Hook
from container_engine.catalog.model import HookFile
from container_engine.catalog.values import NODE, PLACE, Values
from container_engine.edf.annotations import judge_value
from container_engine.plan.hooks import annotation_rule


def faults(hooks: Mapping[str, Hook]) -> tuple[Fault, ...]:
    """Return the faults that no single hook.toml shows, or that the format does not forbid."""
    found: list[Fault] = []
    values = Values(hooks, {}, "")
    for hook in hooks.values():
        found += _unknown_hooks(hook, hooks)
        found += _defaults(hook)
        found += _names(hook, values)
        found += _programs(hook, hooks)
        found += _runs(hook)
        if hook.data.profile and hook.data.profile not in hook.data.profiles:
            known = ", ".join(hook.data.profiles)
            message = f"profile: there is no profile '{hook.data.profile}'"
            found.append(Fault(hook.file, message, f"there are {known}" if known else None))
    found += _shared_annotations(hooks)
    found += _cycles(hooks)
    return tuple(found)


def _unknown_hooks(hook: Hook, hooks: Mapping[str, Hook]) -> Iterator[Fault]:
    data = hook.data
    for key, names in {**applied_before(data), "conflicts": data.conflicts}.items():
        for name in names:
            if name not in hooks:
                meant = nearest(name, hooks)
                hint = f"did you mean '{meant}'?" if meant else None
                yield Fault(hook.file, f"{key}: there is no hook '{name}'", hint)


def _defaults(hook: Hook) -> Iterator[Fault]:
    rule = annotation_rule(hook)
    for name, parameter in hook.data.parameters.items():
        if name in hook.data.settings:
            yield Fault(hook.file, f"'{name}' is both a parameter and a setting")
        for key, values in (("default", (parameter.default,)), ("values", parameter.values)):
            for value in filter(None, values):
                doubt = judge_value(value, rule.parameters[name])
                if doubt:
                    yield Fault(hook.file, f"parameters.{name}.{key}: {doubt.message}", doubt.hint)
    for name in hook.data.allow:
        if name not in hook.data.settings:
            yield Fault(hook.file, f"allow: there is no setting '{name}'")


def _names(hook: Hook, values: Values) -> Iterator[Fault]:
    """Yield a fault for each undefined name in strings and conditions."""
    data = hook.data
    dumped = data.model_dump_json(include={"edits", "services", "checks", "settings"})
    texts = [dumped, *(one.values_in for one in data.parameters.values())]
    names = {name: f"{{{name}}}" for text in texts for name in PLACE.findall(text)}
    conditions = [
        *(edit.when for edit in data.edits.values()),
        *(service.when for service in data.services.values()),
        *(check.when for check in data.checks.values()),
        *(parameter.when for parameter in data.parameters.values()),
    ]
    names |= {name: f"when: '{name}'" for when in conditions for name in when}
    for name, shown in names.items():
        if not name.startswith(NODE) and values.look_up(hook, name) is None:
            yield Fault(hook.file, f"{shown} is neither a parameter nor a setting")


def _programs(hook: Hook, hooks: Mapping[str, Hook]) -> Iterator[Fault]:
    """Yield a fault for each program that a user's annotation could choose."""
    data = hook.data
    programs = [("services", one.command[0]) for one in data.services.values()]
    programs += [("services", one.stop[0]) for one in data.services.values() if one.stop]
    runs = [one for one in data.checks.values() if isinstance(one, RunCheck)]
    programs += [("checks", one.command[0]) for one in runs if one.command]
    programs += [("hooks", one.path) for edit in data.edits.values() for one in edit.hooks]
    for key, program in programs:
        for name in sorted(_users_names(hook, hooks, program)):
            message = (
                f"{key}: '{program}': users must not choose a program, and {{{name}}} is theirs"
            )
            yield Fault(hook.file, message)


def _runs(hook: Hook) -> Iterator[Fault]:
    for name, one in hook.data.checks.items():
        if isinstance(one, RunCheck):
            for key, message in run_check.faults(one):
                yield Fault(hook.file, message, key=f"checks.{name}.{key}")
        elif one.kind == "memlock" and not one.subject.isdigit():
            message = f"expected a number of KiB, got '{one.subject}'"
            yield Fault(hook.file, message, key=f"checks.{name}.subject")


def _users_names(hook: Hook, hooks: Mapping[str, Hook], text: str, depth: int = 4) -> set[str]:
    """Return the names in `text`, and in the settings it uses, whose values a user can set."""
    found: set[str] = set()
    for name in PLACE.findall(text):
        owner, own = hook, name
        if "." in name:
            first, _, own = name.partition(".")
            owner = hooks.get(first, hook)
        if own in owner.data.parameters or own in owner.data.allow:
            found.add(name)
        elif own in owner.data.settings and depth:
            found |= _users_names(owner, hooks, owner.data.settings[own], depth - 1)
    return found


def _shared_annotations(hooks: Mapping[str, Hook]) -> Iterator[Fault]:
    seen: dict[str, Hook] = {}
    for hook in hooks.values():
        other = seen.setdefault(hook.switch, hook)
        if other is not hook:
            yield Fault(hook.file, f"has the annotation {hook.switch}, as the hook '{other.name}'")


def _cycles(hooks: Mapping[str, Hook]) -> Iterator[Fault]:
    """Yield a fault for each cycle once, naming its hooks and the keys that make it."""
    done: set[str] = set()
    for start in sorted(hooks):
        cycle = _cycle(hooks, start, [], done)
        if cycle:
            pairs = list(zip(cycle, (*cycle[1:], cycle[0]), strict=True))
            keys = sorted({_key(hooks[one].data, other) for one, other in pairs})
            chain = " -> ".join((*cycle, cycle[0]))
            message = f"{', '.join(keys)}: goes in a circle: {chain}"
            yield Fault(hooks[cycle[0]].file, message)


def _cycle(hooks: Mapping[str, Hook], name: str, above: list[str], done: set[str]) -> list[str]:
    if name in above:
        return above[above.index(name) :]
    if name in done or name not in hooks:
        return []
    done.add(name)
    for names in applied_before(hooks[name].data).values():
        for other in names:
            cycle = _cycle(hooks, other, [*above, name], done)
            if cycle:
                return cycle
    return []


def _key(data: HookFile, other: str) -> str:
    return next(key for key, names in applied_before(data).items() if other in names)
