"""Explains why a text is not TOML: the line, a caret below it and the reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from container_engine.base.secrecy import TOKENS, is_secret_name
from container_engine.base.toml_positions import find_positions
from container_engine.edf.model import Problem
from container_engine.edf.toml_mistakes import Place, recognise

if TYPE_CHECKING:
    import tomllib

_MARK = " (at "
_WIDTH = 100
_NO_QUOTE = 'Expected "\'"'


def syntax_problem(path: str, text: str, error: tomllib.TOMLDecodeError) -> Problem:
    """Return the problem with an excerpt.

    The parser's own message is used only if no common mistake is recognised.
    """
    words, number, column = _words_and_place(error, text)
    place = _place(text, number, column)
    message, hint = recognise(place) or (words, None)
    excerpt = _excerpt(place) if place.line.strip() else None
    return Problem("error", path, number, "", message, hint, excerpt)


def _words_and_place(error: tomllib.TOMLDecodeError, text: str) -> tuple[str, int, int]:
    """Return the message, line and column of an error.

    Python before 3.14 gives the place only in the message, always as its last part.
    """
    words, _, where = str(error).rpartition(_MARK)
    numbers = [int(word) for word in where.strip(")").replace(",", "").split() if word.isdigit()]
    if len(numbers) != 2:
        last = text.rstrip().count("\n") + 1
        numbers = [last, len(text.rstrip().split("\n")[-1]) + 1]
    if words == _NO_QUOTE:
        numbers = _unclosed(text) or numbers
    return f"{words[:1].lower()}{words[1:]}", numbers[0], numbers[1]


def _unclosed(text: str) -> list[int] | None:
    """Return line and column of the end of the first line with a string in ' that is not closed.

    The parser looks for the ' to the end of the file, and stops there.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        code = re.sub(r'"(?:\\.|[^"\\])*"|#.*', "", line.replace("'''", ""))
        if code.count("'") % 2:
            return [number, len(line.rstrip()) + 1]
    return None


def _place(text: str, number: int, column: int) -> Place:
    lines = text.split("\n")
    line = lines[number - 1] if number <= len(lines) else ""
    above = [*lines[: number - 1], line[: column - 1]]
    before_it, positions = find_positions("\n".join(above)), find_positions(text)
    return Place(number, column, line, _last_code(above), before_it, positions)


def _last_code(lines: list[str]) -> str:
    """Return the last character of code, "" if there is none; " #" is taken for a comment."""
    for line in reversed(lines):
        code = line.strip()
        if code and not code.startswith("#"):
            return code.partition(" #")[0].rstrip()[-1]
    return ""


def _excerpt(place: Place) -> str:
    """Return the line with a caret below it; of a long line the part around the caret."""
    start = max(0, place.column - 1 - _WIDTH * 3 // 4) if len(place.line) > _WIDTH else 0
    line = _without_secret(place.line)
    shown = "".join(c if c.isprintable() else " " for c in line[start : start + _WIDTH])
    margin = f"{place.number:5} | "
    caret = " " * (len(margin) - 2) + "| " + " " * (place.column - 1 - start) + "^"
    return f"{margin}{shown}\n{caret}"


def _without_secret(line: str) -> str:
    """Replace a secret with as many stars, so that the caret stays in place."""
    name, equals, value = line.partition("=")
    if equals and is_secret_name(name.strip().strip("\"'").rpartition(".")[2]):
        stars = "".join(c if c in "\"' #\t" else "*" for c in value)
        return f"{name}{equals}{stars}"
    return re.sub(TOKENS, lambda match: "*" * len(match[0]), line)
