"""From annotations and the hook catalog to the hooks of a plan. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from container_engine.catalog.match import AUTOMATIC, Refusal, match
from container_engine.edf.hookvalues import HookRule, ValueRule
from container_engine.edf.model import Problem
from container_engine.plan.model import HookUse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from container_engine.catalog.load import Hook
    from container_engine.catalog.match import Active
    from container_engine.catalog.model import Edit, When
    from container_engine.edf.hookvalues import HookRules
    from container_engine.edf.model import Edf

# `{name}`, `{hook.name}`; `{node.name}` stays for the node
_PLACE = re.compile(r"\{([a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)?)\}")
_NODE = "node."
_DEPTH = 4
T = TypeVar("T")


class Used(NamedTuple):
    """The plan's hooks unless some problem is an error."""

    hooks: tuple[HookUse, ...]
    problems: tuple[Problem, ...]


def use(edf: Edf, hooks: Mapping[str, Hook], machine: str) -> Used:
    """What the annotations of `edf` make of the catalog's `hooks` on a `machine` (uname -m)."""
    annotations = {entry.key: entry.value for entry in edf.annotations}
    matched = match(hooks, annotations)
    values = Values(hooks, annotations, machine)
    problems = [_problem(edf, refusal) for refusal in matched.refusals]
    uses = []
    for active in matched.active:
        problems += _requirements(edf, active)
        uses.append(_use(edf, active, values))
    return Used(tuple(uses), tuple(problems))


def rules(hooks: Mapping[str, Hook]) -> HookRules:
    """What the catalog's hooks take as annotations, for the loader of EDFs."""
    return tuple(_rule(hook) for hook in hooks.values())


def _rule(hook: Hook) -> HookRule:
    data = hook.data
    parameters = {
        name: ValueRule(
            parameter.type,
            parameter.values,
            parameter.minimum,
            parameter.maximum,
        )
        for name, parameter in data.parameters.items()
    }
    parameters |= {name: ValueRule("file") for name in data.allow}
    sites = frozenset(data.settings.keys() - set(data.allow))
    return HookRule(hook.name, hook.annotation, hook.switch, parameters, sites)


class Values:
    """What the names in a hook's strings stand for."""

    def __init__(
        self, hooks: Mapping[str, Hook], annotations: Mapping[str, str], machine: str
    ) -> None:
        self._hooks = hooks
        self._annotations = annotations
        self._machine = machine

    def parameters(self, hook: Hook) -> dict[str, str]:
        return {name: self._parameter(hook, name) for name in sorted(hook.data.parameters)}

    def look_up(self, hook: Hook, name: str) -> str | None:
        """The value of `name` or `hook.name` as `hook` sees it; None if there is no such name."""
        other, dot, own = name.partition(".")
        if dot:
            owner = self._hooks.get(other)
            return None if owner is None else self.look_up(owner, own)
        if name in hook.data.parameters:
            return self._parameter(hook, name)
        if name in hook.data.settings:
            return self._setting(hook, name)
        return self._machine if name == "arch" else None

    def text(self, hook: Hook, text: str, depth: int = _DEPTH) -> str:
        """`text` with its names replaced; what a user said is never looked into again."""

        def replaced(found: re.Match[str]) -> str:
            name = found[1]
            if name.startswith(_NODE):
                return found[0]
            value = self.look_up(hook, name)
            if value is None:
                return found[0]
            own = name.rpartition(".")[2]
            owner = self._hooks.get(name.partition(".")[0], hook) if "." in name else hook
            is_sites = own in owner.data.settings and depth > 0
            return self.text(owner, value, depth - 1) if is_sites else value

        return _PLACE.sub(replaced, text)

    def setting(self, hook: Hook, name: str) -> str:
        return self.text(hook, self._setting(hook, name))

    def holds(self, hook: Hook, when: When) -> bool:
        for name, wanted in when.items():
            values = (wanted,) if isinstance(wanted, str) else wanted
            if self.look_up(hook, name) not in values:
                return False
        return True

    def _parameter(self, hook: Hook, name: str) -> str:
        said = self._annotations.get(f"{hook.annotation}.{name}")
        return hook.data.parameters[name].default if said is None else said

    def _setting(self, hook: Hook, name: str) -> str:
        said = self._annotations.get(f"{hook.annotation}.{name}")
        allowed = said is not None and name in hook.data.allow
        return said if allowed and said is not None else hook.data.settings[name]


def _use(edf: Edf, active: Active, values: Values) -> HookUse:
    hook, data = active.hook, active.hook.data
    edits = [edit for edit in data.edits.values() if values.holds(hook, edit.when)]
    made = {
        **_merged(edits, data.profiles.get(data.profile, {})),
        "services": [
            {"name": name, **service.model_dump(exclude={"name", "when"})}
            for name, service in data.services.items()
            if values.holds(hook, service.when)
        ],
        "checks": [
            *_libc_check(data.requires.libc),
            *(
                check.model_dump(exclude={"when"})
                for check in data.checks.values()
                if values.holds(hook, check.when)
            ),
        ],
    }
    about = {
        "name": hook.name,
        "release": data.release,
        "file": hook.file,
        "reason": active.reason,
        "from": _origin(edf, active.asked) or hook.file,
        "parameters": values.parameters(hook),
        "settings": {name: values.setting(hook, name) for name in sorted(data.settings)},
        "automatic_when": data.automatic_when if active.reason == AUTOMATIC else None,
        "profile": data.profile,
        "code": data.code,
    }
    filled = _filled(made, lambda string: values.text(hook, string))
    return HookUse.model_validate({**about, **filled})


def _libc_check(libc: str) -> list[dict[str, object]]:
    """What only the node can see of the image, as a check."""
    return [{"kind": "libc", "severity": "fail", "subject": libc}] if libc else []


def _merged(edits: Sequence[Edit], profile: Mapping[str, str]) -> dict[str, object]:
    """The edits as one; a variable of a later one counts, and of a profile less than any."""
    env = dict(profile)
    prepend: dict[str, tuple[str, ...]] = {}
    for edit in edits:
        env |= edit.env
        for name, paths in edit.prepend.items():
            prepend[name] = (*prepend.get(name, ()), *paths)
    lists = ("devices", "cdi", "mounts", "libraries", "search", "hooks")
    dumped = [edit.model_dump() for edit in edits]
    return {
        **{key: [item for edit in dumped for item in edit[key]] for key in lists},
        "env": env,
        "prepend": prepend,
        "refresh": any(edit.refresh for edit in edits),
    }


def _filled(value: T, text: Callable[[str], str]) -> T:
    """A copy with all strings replaced, but not the names of tables."""
    result: object = value
    if isinstance(value, str):
        result = text(value)
    elif isinstance(value, dict):
        result = {key: _filled(item, text) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        result = [_filled(item, text) for item in value]
    return cast("T", result)


def _requirements(edf: Edf, active: Active) -> list[Problem]:
    if not active.hook.data.requires.writable or edf.writable:
        return []
    refusal = Refusal(
        active.asked,
        f"the hook '{active.hook.name}' ({active.reason}) needs a container that can be written",
        f"writable is false, {edf.writable_origin}",
    )
    return [_problem(edf, refusal)]


def _problem(edf: Edf, refusal: Refusal) -> Problem:
    origin = next((one.origin for one in edf.annotations if one.key == refusal.key), None)
    return Problem(
        "error" if refusal.is_error else "warning",
        origin.file if origin else edf.files[-1],
        origin.line if origin else 0,
        refusal.key,
        refusal.message,
        refusal.hint,
    )


def _origin(edf: Edf, key: str) -> str:
    return next((str(one.origin) for one in edf.annotations if one.key == key), "")
