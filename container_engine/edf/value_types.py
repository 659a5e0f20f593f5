"""Checks the types of one file's values: reports wrong ones and returns the rest."""

from __future__ import annotations

from typing import Any, Self

from container_engine.base.did_you_mean import did_you_mean, nearest
from container_engine.base.toml_positions import Path
from container_engine.base.validation_text import MisfitError
from container_engine.edf.document import KEYS, Document
from container_engine.edf.foreign_names import FOREIGN_KEYS, INSTEAD
from container_engine.edf.plain_keys import PLAIN
from container_engine.edf.problems import Report

_SWITCHES = tuple(key for key, kind in PLAIN.items() if kind == "switch")
_STRINGS = tuple(key for key in PLAIN if key not in _SWITCHES)
_ARRAYS = ("base_environment", "mounts", "devices", "startup")
_TABLES = ("env", "annotations")
_NO_ENTRYPOINT = (
    "give the program to srun or ce run; entrypoint = true runs the image's own before it"
)
_LOOKS_LIKE_SWITCH = {"true": "true", "yes": "true", "on": "true", "1": "true"} | {
    "false": "false",
    "no": "false",
    "off": "false",
    "0": "false",
}


class Checked:
    """The part of a file with the right types; `indexes` are the items' places in the file."""

    def __init__(self, document: Document, indexes: dict[str, list[int]]) -> None:
        self.document = document
        self._indexes = indexes

    def paths(self, key: str, count: int) -> list[Path]:
        """Return the paths in the file of the `count` items that are left of an array."""
        return [(key, index) for index in self._indexes.get(key, range(count))]


def check(data: dict[str, Any], report: Report) -> Checked:
    """Return the values of a file that have the right types; report all others."""
    _check_places(data, report)
    known = {key: value for key, value in data.items() if key in KEYS}
    for key in data:
        if key not in known:
            _unknown_key(key, report)
    try:
        return Checked(Document.of(known), {})
    except MisfitError as error:
        faults = list(error.unfit)
    bad: set[Path] = set()
    for fault in faults:
        bad.add(fault.place)
        _wrong_type(fault.place, fault.value, report)
    return _without(known, bad)


def _without(data: dict[str, Any], bad: set[Path]) -> Checked:
    indexes: dict[str, list[int]] = {}
    good: dict[str, Any] = {}
    for key, value in data.items():
        if (key,) in bad:
            continue
        good[key] = value
        if isinstance(value, list):
            indexes[key] = [i for i in range(len(value)) if (key, i) not in bad]
            good[key] = [value[i] for i in indexes[key]]
        elif isinstance(value, dict):
            good[key] = {name: v for name, v in value.items() if (key, name) not in bad}
    return Checked(Document.of(good), indexes)


def _unknown_key(key: str, report: Report) -> None:
    instead = INSTEAD.get(key.lower())
    meant = None
    if not report.is_full and not instead:
        meant = FOREIGN_KEYS.get(key.lower()) or nearest(key, KEYS)
    suggestion = did_you_mean(meant)
    report.unknown((key,), f"unknown key '{key}' has no effect{suggestion}", instead)


def _check_places(data: dict[str, Any], report: Report) -> None:
    """Warn of keys of the top level that are written below a table, and so belong to it."""
    for table in _TABLES:
        inner = data.get(table)
        if not isinstance(inner, dict):
            continue
        for name in KEYS:
            if name not in data and isinstance(inner.get(name), str | bool):
                report.warning((table, name), *misplaced(name, table))


def misplaced(name: str, table: str) -> tuple[str, str]:
    """Return the message and the hint for a key below a table."""
    return (
        f"'{name}' is below [{table}] and so belongs to it",
        f"move the line above the first [table] if you mean the key '{name}'",
    )


def _wrong_type(path: Path, value: object, report: Report) -> None:
    key = str(path[0])
    if len(path) > 1:
        wanted = "a string"
    elif key in _SWITCHES:
        wanted = "true or false"
    elif key in _TABLES:
        wanted = "a table"
    elif key == "image":
        wanted = "a string or an array of strings"
    else:
        wanted = "an array of strings" if key in _ARRAYS else "a string"
    report.error(path, f"expected {wanted}, found {describe(value)}", _type_hint(path, value))


def _type_hint(path: Path, value: object) -> str | None:
    key = str(path[0])
    name = str(path[-1])
    if key == "env" and len(path) > 1:
        return _env_hint(name, value)
    if key in _SWITCHES:
        switch = _LOOKS_LIKE_SWITCH.get(str(value).lower())
        quotes = ", without quotes" if isinstance(value, str) else ""
        other = _NO_ENTRYPOINT if key == "entrypoint" else None
        return f"write {key} = {switch}{quotes}" if switch else other
    if key in _ARRAYS:
        return _array_hint(path, value)
    if key == "env":
        return 'write [env] on a line of its own and below it NAME = "value"'
    if key == "annotations":
        return (
            'write [annotations] on a line of its own and below it com.hooks.NAME.enabled = "true"'
        )
    return (
        _string_hint(key, value)
        if path == ("image",) or (len(path) == 1 and key in _STRINGS)
        else None
    )


def _array_hint(path: Path, value: object) -> str | None:
    if len(path) > 1:
        text = scalar_text(value)
        return None if text is None else f'write "{text}"'
    if isinstance(value, str):
        return f'write {path[0]} = ["{_short(value)}"]'
    return f'write {path[0]} = ["…"]' if isinstance(value, dict) else None


def _string_hint(key: str, value: object) -> str | None:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return f'write {key} = "{_short(value[0])}"'
    return _quote_hint(key, value)


def _env_hint(name: str, value: object) -> str | None:
    if name in KEYS:
        return misplaced(name, "env")[1]
    if isinstance(value, dict):
        return "a name that contains a dot must be quoted"
    return _quote_hint(name, value)


def _quote_hint(name: str, value: object) -> str | None:
    text = scalar_text(value)
    return None if text is None else f'write {name} = "{text}"'


class TomlFloat(float):
    """A float that keeps its spelling: 26.10 must not become 26.1 in an annotation."""

    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text.replace("_", "")
        return number


def scalar_text(value: object) -> str | None:
    """Return a boolean, an integer or a float as TOML writes it, None for everything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, TomlFloat):
        return value.text
    # Python refuses to print integers of thousands of digits; TOML has 64 bits
    if isinstance(value, int) and value.bit_length() <= 64:
        return str(value)
    return None


def describe(value: object) -> str:
    """Describe the value for a message: `the integer 5`, `an array`."""
    if isinstance(value, str):
        return f'the string "{_short(value)}"'
    if isinstance(value, list):
        return "an array"
    if isinstance(value, dict):
        return "a table"
    text = scalar_text(value)
    if text is None:
        return "an integer of more than 64 bits" if isinstance(value, int) else "a date or time"
    if isinstance(value, bool):
        return text
    return f"the {'integer' if isinstance(value, int) else 'float'} {_short(text)}"


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
