"""Checks the annotations for hooks when a job is submitted. Pure.

The rules are data of the hook catalog; the caller that loads an EDF passes them in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from container_engine.base.did_you_mean import did_you_mean, nearest

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
    bad = next((c for c in value if c in "/{}" or not c.isprintable()), None)
    if bad is not None:
        return Doubt(f"'{value}' has the character {bad!r}, which is not allowed in it")
    if value in (".", ".."):
        return Doubt(f"'{value}' is not a name")
    return None


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
        hint = "'~' is not expanded, write ${HOME}" if value.startswith("~") else None
        return Doubt(f"'{value}' is not an absolute path", hint)
    bad = next((c for c in value if c in "{}" or not c.isprintable()), None)
    if bad is not None:
        return Doubt(f"'{value}' has the character {bad!r}, which is not allowed in it")
    return None


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
