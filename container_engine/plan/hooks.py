"""Turns annotations and the hook catalog into the hooks of a plan. Pure.

In this order: the hooks that apply and their data, parameters that depend on others or on
directories, hooks that edit the same thing, and parameters that the code of hooks adds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

from container_engine.base.run_check import RunCheck
from container_engine.base.text_layout import did_you_mean, natural, nearest
from container_engine.catalog.enabled import REQUIRED, Active, Refusal, conditions, match
from container_engine.catalog.values import Values, in_words
from container_engine.faults.hook_switches import turn_off, turn_on
from container_engine.plan.model import HookUse, LaunchPlan

if TYPE_CHECKING:
    from container_engine.catalog.load import Hook
    from container_engine.catalog.model import AnyCheck, Edit, HookService, Parameter, When
    from container_engine.edf.annotations import HookRule
    from container_engine.edf.model import Edf, Problem

T = TypeVar("T")
# the names in a directory, or None if it cannot be read here; it may still exist on the nodes
Entries: TypeAlias = Callable[[str], Sequence[str] | None]
# the value of a parameter `secret` in a plan, which each launch replaces with a secret of its own
SECRET = "@new@"
LATEST = "latest"
_SHOWN = 20
_WILDCARD = re.compile(r"[*?[]")


class Used(NamedTuple):
    """The plan's hooks, not to be used if a problem is an error."""

    hooks: tuple[HookUse, ...]
    problems: tuple[Problem, ...]


def use(edf: Edf, hooks: Mapping[str, Hook], machine: str, entries: Entries) -> Used:
    """Return the catalog's `hooks` as the annotations of `edf` use them on `machine` (uname -m).

    `entries` lists a directory of the submit host.
    """
    annotations = {entry.key: entry.value for entry in edf.annotations}
    every, refused = match(hooks, annotations)
    values = Values(hooks, annotations, machine)
    problems = [_problem(edf, refusal) for refusal in refused]
    uses = []
    for active in every:
        refusals = [*_requirements(edf, active), *settle(active, values, annotations, entries)]
        problems += [_problem(edf, refusal) for refusal in refusals]
        origin = _origin(edf, active.asked) or active.hook.file
        uses.append(_use(active, values, origin, edf=edf))
    active_names = {active.hook.name for active in every}
    for hook in hooks.values():
        if hook.name not in active_names and not hook.data.turned_off:
            problems += [_problem(edf, refusal) for refusal in idle(hook, annotations)]
    clashes = _clashes(uses, every)
    problems += [_problem(edf, refusal, "hook-clash") for refusal in clashes]
    return Used(tuple(uses), tuple(problems))


def _clashes(uses: Sequence[HookUse], active: Sequence[Active]) -> Iterator[Refusal]:
    known = {one.hook.name: one for one in active}
    for found in overlaps(uses):
        message = f"the hooks '{found.one}' and '{found.other}' both edit {found.what}"
        two = known[found.other], known[found.one]
        yield Refusal(two[0].asked or two[1].asked, message, _instead(*two))


def _instead(*two: Active) -> str:
    """Return what to do about two hooks of which only one can be used."""
    sites = [one for one in two if not one.asked]
    if not sites:
        return "use one of them"
    free = [one.hook.switch for one in sites if one.hook.data.default != REQUIRED]
    off = f"{turn_off(free[0])} below [annotations] leaves it out" if free else ""
    if len(sites) == 1:
        name = sites[0].hook.name
        return f"the site applies '{name}' by itself: " + (off or "remove the line of the other")
    return "the site applies both by itself, tell its support" + (
        off and f"; until then {off.replace('leaves it', 'leaves one')}"
    )


def annotation_rule(hook: Hook) -> HookRule:
    """Return the rule for the hook's annotations, for the EDF loader."""
    from container_engine.edf.annotations import HookRule, ValueRule

    data = hook.data
    parameters = {
        name: ValueRule(one.type, one.values, one.minimum, one.maximum)
        for name, one in data.parameters.items()
    }
    parameters |= {name: ValueRule("file") for name in data.allow}
    sites = frozenset(data.settings.keys() - set(data.allow))
    return HookRule(hook.name, hook.annotation, hook.switch, parameters, sites)


def whole(hooks: Mapping[str, Hook], machine: str) -> tuple[HookUse, ...]:
    """Return all hooks with every part of their data, whatever its condition, for inspection."""
    values = Values(hooks, {}, machine)
    return tuple(
        _use(Active(hook, "", "", conditions(hook)), values, hook.file, every=True)
        for hook in hooks.values()
    )


def choices(
    hooks: Mapping[str, Hook], hook: Hook, machine: str, entries: Entries
) -> Iterator[tuple[str, HookUse]]:
    """Yield a hook with its defaults, then with each other value that a parameter lists, singly.

    Each comes with the choice as "NAME = VALUE", which is empty for the defaults.
    """
    parameters = hook.data.parameters.items()
    others = [
        (name, value)
        for name, parameter in parameters
        for value in parameter.values
        if value != parameter.default
    ]
    for name, value in [("", ""), *others]:
        chosen = {f"{hook.annotation}.{name}": value} if name else {}
        values, active = Values(hooks, chosen, machine), Active(hook, "", "")
        # the problems are dropped: the caller sees them as missing parts
        settle(active, values, chosen, entries)
        yield f"{name} = {value}" if name else "", _use(active, values, hook.file)


def _use(
    active: Active, values: Values, origin: str, *, edf: Edf | None = None, every: bool = False
) -> HookUse:
    """Return the hook with the parts whose conditions hold, or with `every` part."""
    hook, data = active.hook, active.hook.data

    def applies(when: When) -> bool:
        return every or values.holds(hook, when)

    edits = [edit for edit in data.edits.values() if applies(edit.when)]
    merged = _merged(edits, data.profiles.get(data.profile, {}))
    env = merged["env"] | {entry.name: entry.value for entry in (edf.env if edf else ())}
    checks = [
        (name, check)
        for name, check in data.checks.items()
        if applies(check.when) and (every or _is_needed(check.needed_by, env))
    ]
    made = {
        **merged,
        "services": [
            {**_planned(service), "name": name}
            for name, service in data.services.items()
            if applies(service.when)
        ],
        "checks": [
            *_libc_check(data.requires.libc),
            *(_planned(check) for _name, check in checks if not isinstance(check, RunCheck)),
        ],
        "runs": [
            {**_planned(check), "name": name}
            for name, check in checks
            if isinstance(check, RunCheck)
        ],
    }
    about = {
        "name": hook.name,
        "switch": "" if data.default == REQUIRED else hook.switch,
        "release": data.release,
        "file": hook.file,
        "reason": active.reason,
        "from": origin,
        "parameters": values.parameters(hook),
        "settings": {name: values.setting(hook, name) for name in sorted(data.settings)},
        "automatic_when": active.when,
        "profile": data.profile,
        "code": data.code,
    }
    filled = _filled(made, lambda string: values.text(hook, string))
    return HookUse.of({**about, **filled})


def _planned(part: HookService | AnyCheck) -> dict[str, object]:
    """Return what a plan has of a part: all but its conditions."""
    return {key: v for key, v in part.as_dict().items() if key not in ("when", "needed_by")}


def _is_needed(by: str, env: Mapping[str, object]) -> bool:
    """Check whether a variable is set as a check says that is for it, if it says so."""
    name, equals, pattern = by.partition("=")
    value = env.get(name)
    return not by or (value is not None and (not equals or fnmatchcase(str(value), pattern)))


def _libc_check(libc: str) -> list[dict[str, object]]:
    """Return a check of the image's C library, which only the node can see."""
    return [{"kind": "libc", "severity": "fail", "subject": libc}] if libc else []


def _merged(edits: Sequence[Edit], profile: Mapping[str, str]) -> dict[str, Any]:
    """Merge the edits into one; later edits override variables of earlier ones and the profile."""
    env = dict(profile)
    prepend: dict[str, tuple[str, ...]] = {}
    for edit in edits:
        env |= edit.env
        for name, paths in edit.prepend.items():
            prepend[name] = (*prepend.get(name, ()), *paths)
    lists = ("devices", "cdi", "cdi_if_there", "mounts", "libraries", "search", "hooks")
    dumped = [edit.as_dict() for edit in edits]
    return {
        **{key: [item for edit in dumped for item in edit[key]] for key in lists},
        "env": env,
        "prepend": prepend,
        "refresh": any(edit.refresh for edit in edits),
    }


def _filled(value: T, text: Callable[[str], str]) -> T:
    """Return a copy with all strings replaced, except the keys of tables."""
    result: object = value
    if isinstance(value, str):
        result = text(value)
    elif isinstance(value, dict):
        result = {key: _filled(item, text) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        result = [_filled(item, text) for item in value]
    return cast("T", result)


def _requirements(edf: Edf, active: Active) -> Iterator[Refusal]:
    if active.hook.data.requires.writable and not edf.writable:
        name, why = active.hook.name, active.reason
        message = f"the hook '{name}' ({why}) needs a writable container"
        yield Refusal(active.asked, message, f"writable is false, {edf.writable_origin}")


def _problem(edf: Edf, refusal: Refusal, see: str = "hook-refused") -> Problem:
    origins = {one.key: one.origin for one in edf.annotations}
    origin = origins.get(refusal.key) or origins.get(refusal.asked) or edf.place
    judge = origin.error if refusal.is_error else origin.warning
    return judge(refusal.key or refusal.asked, refusal.message, refusal.hint, see)


def _origin(edf: Edf, key: str) -> str:
    return next((str(one.origin) for one in edf.annotations if one.key == key), "")


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


class Overlap(NamedTuple):
    one: str
    other: str
    what: str


def overlaps(uses: Sequence[HookUse]) -> Iterator[Overlap]:
    """Yield pairs of hooks that edit one path, variable or service differently.

    Equal edits are no overlap, nor are those of hooks that never apply in the same step.
    """
    seen: dict[str, list[tuple[HookUse, object]]] = {}
    for use in uses:
        for what, edit in _edits(use):
            others = seen.setdefault(what, [])
            for other, before in others:
                if other.name != use.name and before != edit and not _exclusive(other, use):
                    yield Overlap(other.name, use.name, what)
                    break
            others.append((use, edit))


def _exclusive(one: HookUse, other: HookUse) -> bool:
    """Check whether the conditions of two automatic hooks are known to exclude each other."""
    if not one.automatic_when or not other.automatic_when:
        return False
    return all(_contrary(a, b) for a in one.automatic_when for b in other.automatic_when)


def _contrary(one: str, other: str) -> bool:
    """Check whether two conditions want different values of one variable.

    Of patterns, only the text before the first wildcard is compared.
    """
    name, _, value = one.partition("=")
    other_name, _, other_value = other.partition("=")
    if name != other_name or "=" not in one or "=" not in other:
        return False
    head, other_head = (_WILDCARD.split(text)[0] for text in (value, other_value))
    if (head, other_head) == (value, other_value):
        return value != other_value
    return not head.startswith(other_head) and not other_head.startswith(head)


def _edits(use: HookUse) -> Iterator[tuple[str, object]]:
    for mount in use.mounts:
        yield f"the path {mount.target or mount.source}", (mount.source, sorted(mount.options))
    for device in use.devices:
        yield f"the device {device.path}", sorted(device.permissions)
    for name, value in use.env.items():
        yield f"the variable {name}", value
    for service in use.services:
        yield f"the service {service.name}", service.command


class Added(NamedTuple):
    """Further parameters for the node; or an error about `parameter`, which the user has set."""

    parameters: Mapping[str, str]
    parameter: str = ""
    message: str = ""
    hint: str | None = None


def with_added(
    plan: LaunchPlan, edf: Edf, adding: Mapping[str, Callable[[HookUse], Added]]
) -> tuple[LaunchPlan, tuple[Problem, ...]]:
    """Return the plan with what `adding` has for its hooks, and their errors."""
    uses, problems = [], []
    for use in plan.hooks:
        added = adding.get(use.name)
        if added is None:
            uses.append(use)
            continue
        more = added(use)
        given = {**use.parameters, **more.parameters}
        uses.append(use.model_copy(update={"parameters": given}))
        if more.message:
            problems.append(_refused_by_code(edf, more))
    return plan.model_copy(update={"hooks": tuple(uses)}), tuple(problems)


def _refused_by_code(edf: Edf, more: Added) -> Problem:
    # below the annotation that the site gave the hook
    ending = f".{more.parameter}"
    found = [(one.key, one.origin) for one in edf.annotations if one.key.endswith(ending)]
    key, origin = found[0] if found else (more.parameter, edf.place)
    return origin.error(key, more.message, more.hint, "hook-refused")
