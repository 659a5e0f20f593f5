"""How `ce` speaks on stderr: one line each, "ce: error: …", "ce: warning: …", "ce: hint: …"."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING, TextIO

from container_engine.errors import CeError, UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from container_engine.edf.model import Problem


_COLOURS = {"error": "1;31", "internal error": "1;31", "warning": "1;33", "hint": "36"}


class RefusedError(UserError):
    """An environment with at least one error; `problems` are all that was found, warnings too."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = next(problem for problem in problems if problem.severity == "error")
        super().__init__(str(first), first.hint)
        self.problems = tuple(problems)


def of_error(error: CeError) -> str:
    if isinstance(error, RefusedError):
        return of_problems(error.problems)
    return _lines("error", error.message, error.hint)


def of_problems(problems: Sequence[Problem]) -> str:
    return "".join(map(of_problem, problems))


def of_problem(problem: Problem) -> str:
    return _lines(problem.severity, str(problem), problem.hint, problem.excerpt)


def of_advice(problem: Problem) -> str:
    """For stdout: the line itself, and what to do about it below."""
    hint = f"    {one_line(problem.hint)}\n" if problem.hint else ""
    return f"{one_line(str(problem))}\n{hint}"


def of_warning(message: str) -> str:
    return _lines("warning", message, None)


def say(text: str) -> None:
    """Prints what the functions above made. A stderr that nobody reads is no error."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(_coloured(text) if wants_colour(sys.stderr, os.environ) else text)
        sys.stderr.flush()


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether somebody looks at the stream who has not asked for plain text (no-color.org)."""
    plain = environment.get("NO_COLOR") or environment.get("TERM", "dumb") == "dumb"
    return not plain and stream.isatty()


def _coloured(text: str) -> str:
    for kind, colour in _COLOURS.items():
        word = f"ce: {kind}:"
        text = re.sub(f"^{word}", f"\033[{colour}m{word}\033[0m", text, flags=re.MULTILINE)
    return text


def say_progress(message: str) -> None:
    say(f"ce: {one_line(message)}\n")


def shortened(text: str, width: int) -> str:
    """In so many columns, without its middle: the end of a name is its tag, of a path its file."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _lines(kind: str, message: str, hint: str | None, excerpt: str | None = None) -> str:
    text = f"ce: {kind}: {one_line(message)}\n"
    if excerpt:
        text += "".join(f"    {line}\n" for line in excerpt.splitlines())
    if hint:
        text += f"ce: hint: {one_line(hint)}\n"
    return text


def one_line(text: str) -> str:
    """Line ends and other control characters from a user's file must not fake another message."""
    return "".join(c if c.isprintable() or c == " " else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
