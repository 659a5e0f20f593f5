"""Flattens annotations in all spellings to dotted names, and reports mistakes in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from container_engine.base.did_you_mean import did_you_mean, nearest
from container_engine.base.toml_positions import Path
from container_engine.edf.document import KEYS
from container_engine.edf.foreign_names import PYXIS
from container_engine.edf.hook_values import HookRule, HookRules, judge, rule_of
from container_engine.edf.problems import Report, key_text
from container_engine.edf.value_types import describe, misplaced, scalar_text

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
        suggestion = did_you_mean(nearest(name, PYXIS), _PYXIS)
        report.unknown(path, f"unknown annotation '{key}'{suggestion}", f"choose from {_known()}")
    elif text != "true" and text.lower() in _LOOKS_TRUE:
        message = f"'{text}' does not switch it on, only the exact word 'true' does"
        report.warning(path, message, f'write {key} = "true"')


def _known() -> str:
    return ", ".join(_PYXIS + name for name in PYXIS)


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
        if text != "true" and text.lower() in _LOOKS_TRUE:
            message = f"'{text}' does not enable the hook, only the exact word 'true' does"
            report.warning(path, message, f'write {key} = "true"')
    elif parameter not in rule.parameters and parameter not in rule.sites:
        known = rule.names()
        suggestion = did_you_mean(nearest(parameter, known), f"{rule.prefix}.")
        hint = f"the hook '{rule.name}' has these: {', '.join(known)}"
        report.unknown(path, f"unknown annotation '{key}'{suggestion}", hint)
