"""Why a text is not TOML, said as somebody would who looks at the line.

The parser's own words name what it expected next, seldom what the author did. The rules here look
at the line instead; where none of them fits, the parser's words are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from container_engine.edf.document import KEYS
from container_engine.edf.model import Problem
from container_engine.edf.placeholders import find_placeholder
from container_engine.edf.positions import find_positions
from container_engine.edf.report import key_text

if TYPE_CHECKING:
    import tomllib
    from collections.abc import Callable

    from container_engine.edf.positions import Positions

_MARK = " (at "
_WIDTH = 100
_NOT_EDF = "keep only the lines of the environment file itself"
_SHELL_WORDS = (
    "cat", "cd", "curl", "echo", "EOF", "mkdir", "ml", "module", "podman", "salloc", "sbatch",
    "source", "srun", "sudo", "wget",
)  # fmt: skip
_SWITCHES = {"yes": "true", "no": "false", "on": "true", "off": "false"}

Advice = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the parser stopped. `column` counts from 1; `key` and `value` split the line at `=`."""

    number: int
    column: int
    line: str
    key: str
    value: str
    positions: Positions
    at_end: bool

    @property
    def char(self) -> str:
        return self.line[self.column - 1 : self.column]

    @property
    def before(self) -> str:
        return self.line[: self.column - 1].rstrip()


def syntax_problem(path: str, text: str, error: tomllib.TOMLDecodeError) -> Problem:
    """The problem with the line, a caret and, for the usual slips, a message and a hint."""
    words, number, column = _words_and_place(error, text)
    place = _place(text, number, column)
    for rule in _RULES:
        advice = rule(place)
        if advice is not None:
            break
    else:
        advice = (words, None)
    excerpt = _excerpt(place) if place.line.strip() else None
    return Problem("error", path, number, "", advice[0], advice[1], excerpt)


def _words_and_place(error: tomllib.TOMLDecodeError, text: str) -> tuple[str, int, int]:
    """Python before 3.14 tells the place only in the message, always as its last part."""
    words, _, where = str(error).rpartition(_MARK)
    numbers = [int(word) for word in where.strip(")").replace(",", "").split() if word.isdigit()]
    if len(numbers) != 2:
        last = text.rstrip().count("\n") + 1
        numbers = [last, len(text.rstrip().split("\n")[-1]) + 1]
    return f"{words[:1].lower()}{words[1:]}", numbers[0], numbers[1]


def _place(text: str, number: int, column: int) -> _Place:
    lines = text.split("\n")
    line = lines[number - 1] if number <= len(lines) else ""
    key, _, value = line.partition("=")
    at_end = not any(rest.strip() for rest in lines[number:])
    return _Place(number, column, line, key.strip(), _code(value), find_positions(text), at_end)


def _code(value: str) -> str:
    """The value without a comment behind it, as far as one can tell from a single line."""
    value = value.strip()
    if value.startswith(('"', "'")):
        return value
    return value.partition(" #")[0].strip()


def _shell(place: _Place) -> Advice | None:
    line = place.line.strip()
    if line.startswith(("$ ", "> ", "% ")):
        return "a shell prompt is not TOML", _NOT_EDF
    word = line.partition(" ")[0]
    if word in _SHELL_WORDS and "=" not in line.partition(" ")[2][:2]:
        return f"the shell command '{word}' is not TOML", _NOT_EDF
    if word == "export":
        return "'export' is not TOML", 'write [env] and below it NAME = "value"'
    return None


def _quotes(place: _Place) -> Advice | None:
    if any(mark in place.line for mark in "\u201c\u201d\u2018\u2019\u201e"):
        return "typographic quotes are not TOML", "use straight quotes: \"…\" or '…'"
    return None


def _backslash(place: _Place) -> Advice | None:
    if place.char == "\\" or (place.before.endswith("\\") and '"' in place.before):
        hint = r"write '\\' for a backslash, or put the string in single quotes"
        return "a backslash begins an escape that TOML does not know", hint
    return None


def _colon(place: _Place) -> Advice | None:
    name, colon, rest = place.line.partition(":")
    if colon and place.char == ":" and name.strip().replace("_", "").isalnum():
        return "':' does not separate a key from its value", f"write {name.strip()} ={rest}"
    return None


def _dots(place: _Place) -> Advice | None:
    if place.value.startswith(("...", "[...", "[ ...")) or place.line.strip() in ("...", "…"):
        return "'...' is a placeholder", "put your own values in its place"
    return None


def _unquoted(place: _Place) -> Advice | None:
    value = place.value
    if not place.key or not value or value[0] in "\"'[{" or "=" not in place.line:
        return None
    if place.line.index("=") >= place.column:
        return None
    switch = _SWITCHES.get(value.lower(), value.lower())
    if switch in ("true", "false"):
        return f"'{value}' is not a TOML value", f"write {place.key} = {switch}"
    if value.startswith(("#", ",")):
        return None
    placeholder = find_placeholder(value)
    if placeholder is not None:
        return f"'{placeholder}' is a placeholder", "put your own value in its place, in quotes"
    return "a string must be in quotes", f'write {place.key} = "{value.rstrip(",")}"'


def _empty(place: _Place) -> Advice | None:
    if place.key and place.line.strip().endswith("=") and place.char in ("", "\n"):
        return f"no value after '{place.key} ='", f'write {place.key} = "" for an empty string'
    return None


def _comma(place: _Place) -> Advice | None:
    if place.char == "," and place.before:
        return "a comma after the value", "lines end without a comma, only items are separated"
    if place.char == "}" and place.before.endswith(","):
        return "a comma before '}'", "the last entry of an inline table has no comma behind it"
    return None


def _array(place: _Place) -> Advice | None:
    start = _open_bracket(place)
    if start is None:
        return None
    if place.char in ('"', "'") and not place.at_end:
        return "a comma is missing before this item", "the items of an array are separated by ','"
    if place.char in ('"', "'") and place.before.endswith(('"', "'")):
        return "a comma is missing before this item", "the items of an array are separated by ','"
    return f"the array that begins on line {start} is not closed", "end it with ']'"


def _open_bracket(place: _Place) -> int | None:
    """The line of the array in which the parser stopped, if it stopped in one."""
    statement = place.positions.last_statement(place.number)
    return statement[1] if statement and place.positions.is_open_array(statement[0]) else None


def _unclosed_string(place: _Place) -> Advice | None:
    quotes = [mark for mark in ('"', "'") if place.line.count(mark) % 2]
    if quotes and place.char in ("", "\n"):
        return f"a string is not closed on this line, its {quotes[0]} is missing", None
    return None


def _header(place: _Place) -> Advice | None:
    line = place.line.strip()
    if line.startswith("[") and "]" not in line:
        return "the name of a table is not closed", f"write {line.partition(' ')[0]}]"
    return None


def _twice(place: _Place) -> Advice | None:
    statement = place.positions.last_statement(place.number)
    if statement is None:
        return None
    path, line, is_table = statement
    first = place.positions.line(path)
    if first >= line:
        return None
    if not is_table:
        return f"'{key_text(path)}' is written twice, first on line {first}", "remove one of them"
    if place.positions.begun_by_dots(path):
        below = key_text(path[1:]) or "its name"
        hint = f"TOML wants the same form for both: write {below}.NAME = … below [{path[0]}]"
        return f"[{key_text(path)}] is begun by dotted keys on line {first}", hint
    return f"[{key_text(path)}] is defined twice, first on line {first}", "put its keys together"


def _key_only(place: _Place) -> Advice | None:
    line = place.line.strip()
    if "=" in line or line.startswith("[") or not line:
        return None
    name = line.partition(" ")[0]
    if name in KEYS:
        return f"no '=' after '{name}'", f"write {name} = …"
    return "neither KEY = VALUE nor a [table]", "a comment begins with '#'"


_RULES: tuple[Callable[[_Place], Advice | None], ...] = (
    _shell,
    _quotes,
    _backslash,
    _colon,
    _dots,
    _empty,
    _unquoted,
    _comma,
    _array,
    _unclosed_string,
    _header,
    _twice,
    _key_only,
)


def _excerpt(place: _Place) -> str:
    """The line and a caret below it; of a long line the part around the caret."""
    start = max(0, place.column - 1 - _WIDTH * 3 // 4) if len(place.line) > _WIDTH else 0
    shown = "".join(c if c.isprintable() else " " for c in place.line[start : start + _WIDTH])
    margin = f"{place.number:5} | "
    caret = " " * (len(margin) - 2) + "| " + " " * (place.column - 1 - start) + "^"
    return f"{margin}{shown}\n{caret}"
