"""Annotations: their names in all spellings, and the rules for the values that hooks take.

The rules are data of the hook catalog; the caller that loads an EDF passes them in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from container_engine.base.text_layout import did_you_mean, nearest
from container_engine.base.toml_positions import Path
from container_engine.edf.checks import Report, describe, key_text, misplaced, scalar_text
from container_engine.edf.document import KEYS
from container_engine.edf.names import PYXIS, TILDE_HINT

_KEY_TYPES = ("ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-", "-----BEGIN")
_MAX_VALUE = 1000


@dataclass(frozen=True, slots=True)
class ValueRule:
    """A rule for values: of `kind`, one of KINDS, and in `values` unless that is empty."""

    kind: str = "string"
    values: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class HookRule:
    """The annotations of a hook, below `prefix`; the annotation `switch` enables it.

    `sites` are the names of settings that only the site may set.
    """

    name: str
    prefix: str
    switch: str
    parameters: Mapping[str, ValueRule] = field(default_factory=dict)
    sites: frozenset[str] = frozenset()

    def names(self) -> list[str]:
        own = [self.switch.removeprefix(f"{self.prefix}.")]
        return sorted([*self.parameters, *own])


HookRules: TypeAlias = Sequence[HookRule]


class Doubt(NamedTuple):
    message: str
    hint: str | None = None


def rule_of(key: str, rules: HookRules) -> HookRule | None:
    """Return the rule of the hook that an annotation belongs to."""
    return next(
        (rule for rule in rules if key == rule.switch or key.startswith(f"{rule.prefix}.")), None
    )


def judge(key: str, value: str, rules: HookRules) -> Doubt | None:
    """Return the problem of an expanded value, or None if it is valid."""
    rule = rule_of(key, rules)
    if rule is None or key == rule.switch:
        return None
    name = key.removeprefix(f"{rule.prefix}.")
    if name in rule.sites:
        return Doubt(
            f"'{name}' is a setting of the site, which does not let users change it",
            f"the hook '{rule.name}' lets you set {', '.join(rule.names())}",
        )
    wanted = rule.parameters.get(name)
    return judge_value(value, wanted) if wanted else None


def judge_value(value: str, rule: ValueRule) -> Doubt | None:
    """Return the problem of a value of one parameter, or None if it is valid."""
    if rule.values and value not in rule.values:
        return _choice(value, rule.values)
    return KINDS[rule.kind](value, rule)


def _choice(value: str, known: tuple[str, ...]) -> Doubt:
    suggestion = did_you_mean(nearest(value, known))
    return Doubt(f"unknown value '{value}'{suggestion}", f"choose from {', '.join(known)}")


def _string(value: str, _rule: ValueRule) -> Doubt | None:
    """Accept a single word: it may become part of a path, and must not lead elsewhere."""
    if len(value) > _MAX_VALUE:
        return Doubt(f"has {len(value)} characters; {_MAX_VALUE} are allowed")
    if value in (".", ".."):
        return Doubt(f"'{value}' is not a name")
    return _characters(value, "/{}")


def _characters(value: str, refused: str) -> Doubt | None:
    bad = next((c for c in value if c in refused or not c.isprintable()), None)
    return (
        Doubt(f"'{value}' has the character {bad!r}, which is not allowed in it") if bad else None
    )


def _boolean(value: str, _rule: ValueRule) -> Doubt | None:
    if value in ("true", "false"):
        return None
    return Doubt(f"'{value}' is neither 'true' nor 'false'")


def _integer(value: str, rule: ValueRule) -> Doubt | None:
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        return Doubt(f"'{value}' is not an integer")
    low, high = rule.minimum, rule.maximum
    if low is not None and int(value) < low:
        return Doubt(f"{value} is less than {low}")
    if high is not None and int(value) > high:
        return Doubt(f"{value} is more than {high}")
    return None


def _port(value: str, _rule: ValueRule) -> Doubt | None:
    if value.isascii() and value.isdigit() and len(value) < 6 and 1 <= int(value) <= 65535:
        return None
    return Doubt(f"'{value}' is not the number of a port", 'write for example "15263"')


def _file(value: str, _rule: ValueRule) -> Doubt | None:
    if not value.startswith("/"):
        hint = TILDE_HINT if value.startswith("~") else None
        return Doubt(f"'{value}' is not an absolute path", hint)
    return _characters(value, "{}")


def _public_key(value: str, rule: ValueRule) -> Doubt | None:
    if value.startswith(_KEY_TYPES):
        example = 'write the path of its file, for example "${HOME}/.ssh/id_ed25519.pub"'
        return Doubt("expected the path of a file, found the text of a key", example)
    return _file(value, rule)


KINDS: Mapping[str, Callable[[str, ValueRule], Doubt | None]] = {
    "string": _string,
    "boolean": _boolean,
    "integer": _integer,
    "port": _port,
    "file": _file,
    "public_key": _public_key,
}


_HOOKS = "com.hooks."
_ONE_HOOK = "com.hook."
_PYXIS = "com.pyxis."
_LOOKS_TRUE = ("true", "yes", "on", "1", "enabled")


def flatten(table: Mapping[str, object], report: Report) -> dict[str, tuple[str, Path]]:
    """Return each dotted key with its text, not yet expanded, and the path where it was written."""
    flat: dict[str, tuple[str, Path]] = {}
    for path, value in _leaves(("annotations",), table):
        key = ".".join(str(part) for part in path[1:])
        text = value if isinstance(value, str) else scalar_text(value)
        if not key or "\0" in key:
            report.error(path, "not a valid name of an annotation")
        elif text is None:
            wanted = "a string, boolean, integer or float"
            hint = misplaced(key, "annotations")[1] if key in KEYS else _array_hint(path, value)
            report.error(path, f"expected {wanted}, found {describe(value)}", hint)
        elif key in flat:
            first = report.origin(flat[key][1]).line
            report.error(path, f"the same annotation is written in another form on line {first}")
        else:
            flat[key] = (text, path)
    return flat


def _array_hint(path: Path, value: object) -> str | None:
    is_tables = isinstance(value, list) and any(isinstance(item, dict) for item in value)
    return f"write [{key_text(path)}] in single brackets" if is_tables else None


def _leaves(path: Path, table: Mapping[str, object]) -> Iterator[tuple[Path, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves((*path, name), value)
        else:
            yield (*path, name), value


def check_names(flat: Mapping[str, tuple[str, Path]], rules: HookRules, report: Report) -> None:
    """Warn of names and values that no hook will react to."""
    for key, (text, path) in flat.items():
        rule = rule_of(key, rules)
        table, dot, inner = key.partition(".")
        if table in KEYS and dot:
            message = f"'{key}' is below [annotations] and so belongs to it"
            report.warning(path, message, _moved(table, inner))
        elif not dot and table not in KEYS:
            message = f"'{key}' is below [annotations], whose names have dots (com.hooks.…)"
            hint = "if you mean a variable of the tasks, move the line below [env]"
            report.warning(path, message, hint)
        elif key.startswith("hooks."):
            report.unknown(path, f"unknown annotation '{key}', did you mean 'com.{key}'?")
        elif key.startswith(_ONE_HOOK):
            right = _HOOKS + key.removeprefix(_ONE_HOOK)
            report.unknown(path, f"unknown annotation '{key}', did you mean '{right}'?")
        elif rule is not None:
            _check_hook(key, text, path, rule, report)
        elif key.startswith(_HOOKS):
            _unknown_hook(key, path, rules, report)
        elif key.startswith(_PYXIS):
            _check_pyxis(key, text, path, report)


def _moved(table: str, inner: str) -> str:
    if table == "annotations":
        return f"write {inner} = … there, without the name of the table"
    return f"if you mean {table}.{inner}, move the line above the first [table]"


def check_value(key: str, value: str, path: Path, rules: HookRules, report: Report) -> None:
    """Report an expanded value that the hook would not accept."""
    doubt = judge(key, value, rules)
    if doubt is not None:
        report.error(path, doubt.message, doubt.hint)


def _check_pyxis(key: str, text: str, path: Path, report: Report) -> None:
    name = key.removeprefix(_PYXIS)
    if name not in PYXIS:
        known = ", ".join(_PYXIS + name for name in PYXIS)
        suggestion = did_you_mean(nearest(name, PYXIS), _PYXIS)
        report.unknown(path, f"unknown annotation '{key}'{suggestion}", f"choose from {known}")
    else:
        _check_true(key, text, "switch it on", path, report)


def _check_true(key: str, text: str, what: str, path: Path, report: Report) -> None:
    if text != "true" and text.lower() in _LOOKS_TRUE:
        message = f"'{text}' does not {what}, only the exact word 'true' does"
        report.warning(path, message, f'write {key} = "true"')


def _unknown_hook(key: str, path: Path, rules: HookRules, report: Report) -> None:
    hook, dot, parameter = key.removeprefix(_HOOKS).partition(".")
    names = [rule.name for rule in rules]
    meant = hook if hook in names else nearest(hook, names)
    if meant and not dot:
        switch = next(rule.switch for rule in rules if rule.name == meant)
        report.unknown(path, f"unknown annotation '{key}', did you mean '{switch}'?")
    elif meant:
        right = f"{_HOOKS}{meant}.{parameter}"
        report.unknown(path, f"unknown annotation '{key}', did you mean '{right}'?")


def _check_hook(key: str, text: str, path: Path, rule: HookRule, report: Report) -> None:
    parameter = key.removeprefix(f"{rule.prefix}.")
    if key == rule.switch:
        _check_true(key, text, "enable the hook", path, report)
    elif parameter not in rule.parameters and parameter not in rule.sites:
        known = rule.names()
        suggestion = did_you_mean(nearest(parameter, known), f"{rule.prefix}.")
        hint = f"the hook '{rule.name}' has these: {', '.join(known)}"
        report.unknown(path, f"unknown annotation '{key}'{suggestion}", hint)
