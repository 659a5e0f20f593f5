"""Checks the types of one file's values, and collects what is wrong there for a single report."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Self

from container_engine.base.errors import CeError
from container_engine.base.model import MisfitError
from container_engine.base.run_check import ListedCheck
from container_engine.base.text_layout import did_you_mean, nearest
from container_engine.base.toml_positions import Path, Positions
from container_engine.edf.document import KEYS, PLAIN, Document
from container_engine.edf.model import Origin, Problem, Severity
from container_engine.edf.names import FOREIGN_KEYS, INSTEAD

MAX_PROBLEMS = 100
_MAX_TEXT = 1000


class Report:
    """The problems at paths such as ("mounts", 1), each with its line and a readable key."""

    def __init__(self, file: str, positions: Positions) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._positions = positions

    @property
    def is_full(self) -> bool:
        """Check whether further problems are only counted."""
        return len(self.problems) >= MAX_PROBLEMS

    def origin(self, path: Path) -> Origin:
        return Origin(self.file, self._positions.line(path))

    def error(self, path: Path, message: str, hint: str | None = None, see: str = "") -> None:
        problem = self.origin(path).error(clip(key_text(path)), clip(message), hint, see)
        self.problems.append(problem)

    def warning(self, path: Path, message: str, hint: str | None = None) -> None:
        problem = self.origin(path).warning(clip(key_text(path)), clip(message), hint)
        self.problems.append(problem)

    def unknown(self, path: Path, message: str, hint: str | None = None) -> None:
        """Add a warning whose message already names the key."""
        problem = self.origin(path).warning("", clip(message), hint, "edf-unknown-key")
        self.problems.append(problem)

    def failure(self, path: Path, error: CeError) -> None:
        self.error(path, error.message, error.hint, error.see)

    def sorted(self) -> tuple[Problem, ...]:
        """Return the problems by line; the last one counts those beyond MAX_PROBLEMS."""
        problems = sorted(self.problems, key=lambda problem: problem.line)
        kept, others = problems[:MAX_PROBLEMS], problems[MAX_PROBLEMS:]
        if others:
            is_error = any(problem.severity == "error" for problem in others)
            message = f"{len(others)} more problems"
            severity: Severity = "error" if is_error else "warning"
            kept.append(Problem(severity, self.file, 0, "", message))
        return tuple(kept)


def clip(text: str) -> str:
    """Return the text, cut off if it is too long to be read."""
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."


def key_text(path: Path) -> str:
    """Return the path as a user writes it: `mounts[1]`, `env.HOME`, `annotations."a b"`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f"{'.' if text else ''}{_key_part(part)}"
    return text


def _key_part(part: str) -> str:
    plain = part.isascii() and part.replace("-", "").replace("_", "").replace(".", "").isalnum()
    return part if plain else '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"'


_SWITCHES = tuple(key for key, kind in PLAIN.items() if kind == "switch")
_ARRAYS = ("base_environment", "mounts", "devices", "startup")
_TABLES = ("env", "annotations")
_HEADS = {
    "annotations": ("[annotations]", 'com.hooks.NAME.enabled = "true"'),
    "checks": ("[[checks]]", "name and command"),
    "env": ("[env]", 'NAME = "value"'),
}
_KEYS_OF_A_CHECK = f"the keys of a check are {', '.join(ListedCheck.model_fields)}"
_NO_ENTRYPOINT = (
    "give the program to srun or ce run; entrypoint = true runs the image's own before it"
)
_LOOKS_LIKE_SWITCH = {"true": "true", "yes": "true", "on": "true", "1": "true"} | {
    "false": "false",
    "no": "false",
    "off": "false",
    "0": "false",
}


def check(data: dict[str, Any], report: Report) -> tuple[Document, Mapping[str, list[int]]]:
    """Return the values of a file that have the right types; report all others.

    Where an array has lost items, the second result has the places that the others had.
    """
    _check_places(data, report)
    known = {key: value for key, value in data.items() if key in KEYS}
    for key in data:
        if key not in known:
            _unknown_key(key, report)
    try:
        return Document.of(known), {}
    except MisfitError as error:
        faults = {
            fault.place: (fault.value, misfit)
            for fault, misfit in zip(error.unfit, error.misfits, strict=True)
        }
    for place, (value, misfit) in faults.items():
        if place[0] == "checks" and len(place) > 1:
            # the message about an unknown key names it
            key = clip(key_text(place)) if misfit.key else ""
            hint = misfit.example if misfit.key else _KEYS_OF_A_CHECK
            report.problems.append(report.origin(place).error(key, clip(misfit.message), hint))
        else:
            _wrong_type(place, value, report)
    return _without(known, {place[:2] for place in faults})


def _without(
    data: dict[str, Any], bad: Collection[Path]
) -> tuple[Document, Mapping[str, list[int]]]:
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
    return Document.of(good), indexes


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
    elif key == "checks":
        wanted = "tables"
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
    if key in _HEADS:
        return "write {} on a line of its own and below it {}".format(*_HEADS[key])
    return _string_hint(key, value) if len(path) == 1 else None


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


_PAIRS = (("{{", "}}"), ("<", ">"), ("{", "}"), ("[", "]"))
_LONGEST = 40
_WORDS = ("USER", "USERNAME", "YOUR_USERNAME", "YOUR_USER", "your_username", "yourusername")
_PATHS = ("/path/to/", "/your/path/", "/PATH/TO/", "path/to/", "your/path/")


def find_placeholder(text: str) -> str | None:
    """Return a part of a text that looks like `<USER>`, `{{user}}` or `/path/to/`, or None."""
    return _find(text, _PAIRS)


def find_path_placeholder(text: str) -> str | None:
    """Return a placeholder in a text with a "/", except one in single `{}` or `[]`, or None.

    In a text that need not be a path, these may be a format.
    """
    return _find(text, _PAIRS[:2]) if "/" in text else None


def _find(text: str, pairs: tuple[tuple[str, str], ...]) -> str | None:
    for opening, closing in pairs:
        start = text.find(opening)
        while start >= 0:
            first = start + len(opening)
            end = text.find(closing, first, first + _LONGEST + len(closing))
            # the braces of ${VAR} are a variable and not a placeholder
            if end > 0 and text[start - 1 : start] != "$" and _is_word(text[first:end]):
                return text[start : end + len(closing)]
            start = text.find(opening, first)
    if "/" in text:
        for word in _WORDS:
            if word in text.split("/"):
                return word
    return next((path for path in _PATHS if text.startswith(path)), None)


def advice(placeholder: str) -> str:
    """Return a hint on the value to write in place of the placeholder."""
    if "user" in placeholder.lower():
        return "write ${USER} for your own user name"
    return "put your own value in its place"


def _is_word(inner: str) -> bool:
    name = inner.strip().replace("_", "").replace("-", "").replace(" ", "").replace(".", "")
    # {node.home} is a field of hooks; a user who writes it gets another error
    is_of_hook = inner.startswith("node.")
    return len(name) > 1 and name.isalnum() and not name.isdigit() and not is_of_hook
