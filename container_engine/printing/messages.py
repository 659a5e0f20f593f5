"""All that `ce` prints on stderr: messages of one line each, and the progress of an import.

Progress is a bar on a terminal, a line from time to time in a log, or nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from container_engine.base.errors import CeError, UserError
from container_engine.base.text_layout import block, duration_text, one_line, shortened, size_text
from container_engine.images.listener import Quiet
from container_engine.submit.refused import RefusedError

if TYPE_CHECKING:
    from container_engine.edf.model import Problem

USAGE = 2
_LOGS = 50
_COLOURS = {"error": "1;31", "internal error": "1;31", "warning": "1;33", "hint": "36"}


def of_error(error: CeError) -> str:
    """Return the whole block. The error's details go to a log, whose path is in the block."""
    from container_engine.faults.catalogue import remedy

    log = _kept(error.details)
    if isinstance(error, RefusedError):
        return of_problems(error.problems, log)
    hint = remedy(error.see, error.hint) or None
    also = "".join(f"ce: also: {one_line(text)}\n" for text in error.also)
    first, _end, rest = block("error", error.message, hint).partition("\n")
    return f"{first}\n{also}{rest}" + _last(log, [error.see])


def _last(log: str, codes: Sequence[str]) -> str:
    pages = " ".join(filter(None, dict.fromkeys(codes)))
    text = f"ce: details: {one_line(log)}\n" if log else ""
    return text + (f"ce: see: ce help {pages}\n" if pages else "")


def _kept(text: str) -> str:
    """Write the text to a log and return its path, or "" if there is no text."""
    if not text:
        return ""
    import time

    from container_engine.base.files import forget_oldest
    from container_engine.node.report import errors

    directory = log_directory(os.environ)
    path = errors.keep(directory, f"{time.time_ns()}-{os.getpid()}.log", text)
    with contextlib.suppress(OSError):
        forget_oldest(directory, _LOGS)
    return path


def log_directory(environment: Mapping[str, str]) -> str:
    """Return the directory of error logs; those of nodes are elsewhere, beside the traces."""
    from container_engine.base.files import user_directory

    state = user_directory("XDG_STATE_HOME", ".local/state", environment)
    if not state:
        return f"/tmp/container-engine-{os.geteuid()}"  # made for this user alone
    return f"{state}/container-engine/errors"


def of_problems(problems: Sequence[Problem], log: str = "") -> str:
    """Return the lines of problems that `completed` has returned, each general hint once.

    The last line names the pages about the errors.
    """
    from dataclasses import replace

    from container_engine.faults.catalogue import remedy

    text, general = "", set[str]()
    for problem in problems:
        is_repeated = problem.hint in general
        text += (replace(problem, hint=None) if is_repeated else problem).text
        if problem.hint and problem.hint == remedy(problem.see, None):
            general.add(problem.hint)
    return text + _last(log, [one.see for one in problems if one.severity == "error"])


def refuse(message: str, hint: str | None) -> int:
    """Report a wrong command line and return its exit code."""
    say(of_error(UserError(message, hint)))
    return USAGE


class _LastLine:
    """The terminal's last line, where progress is drawn until something else is printed."""

    is_drawn = False


def draw(text: str) -> None:
    """Replace the terminal's last line by this text, which the next message replaces."""
    _LastLine.is_drawn = True
    _write(f"\r\033[K{text}")


def clear() -> None:
    if _LastLine.is_drawn:
        _LastLine.is_drawn = False
        _write("\r\033[K")


def say(text: str) -> None:
    """Print text made by the functions above. A closed stderr is not an error."""
    clear()
    _write(_coloured(text) if wants_colour(sys.stderr, os.environ) else text)


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Check whether the stream is a terminal and no plain text is requested (no-color.org)."""
    plain = environment.get("NO_COLOR") or environment.get("TERM", "dumb") == "dumb"
    return not plain and stream.isatty()


def _coloured(text: str) -> str:
    for kind, colour in _COLOURS.items():
        word = f"ce: {kind}:"
        text = re.sub(f"^{word}", f"\033[{colour}m{word}\033[0m", text, flags=re.MULTILINE)
    return text


def say_progress(message: str) -> None:
    say(f"ce: {one_line(message)}\n")


def say_use(name: str) -> None:
    """Print how to use an image that has just been built, imported or pulled."""
    say_progress(
        f'to use it, write image = "{name}" into an environment, or: ce init NAME --image {name}'
    )


_REDRAW_S, _LINE_S = 0.1, 10.0
_PACE_S = 5.0  # the time before now over which the rate is measured
_LONGEST_BAR, _SHORTEST_BAR = 24, 6
_SHORTEST_NAME, _NAME = 8, 12
_FAR = len("100% of 999 MiB, 999 MiB/s, 119 s left")  # the usual length: the bar keeps its width
_CTRL_C = len("^C")  # room for what a terminal prints, which would otherwise begin another line


class _Pace:
    """The rate at which bytes are done, and the time that the rest takes."""

    def __init__(self) -> None:
        self._of = ("", "")
        self._marks: deque[tuple[float, int]] = deque()

    def mark(self, name: str, doing: str, done: int, now: float) -> None:
        if self._of != (name, doing):
            self._of = (name, doing)
            self._marks.clear()
        if not self._marks or now - self._marks[-1][0] >= _REDRAW_S:
            self._marks.append((now, done))
        while now - self._marks[0][0] > _PACE_S and len(self._marks) > 2:
            self._marks.popleft()

    def text(self, total: int) -> str:
        """Return the rate and the time left; nothing in the first second."""
        (began, first), (now, done) = self._marks[0], self._marks[-1]
        if now - began < 1 or done <= first:
            return ""
        rate = (done - first) / (now - began)
        return f", {size_text(rate)}/s, {duration_text((total - done) / rate)} left"


class Log(Quiet):
    """Progress lines for files that are read later."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _LINE_S
        self._pace = _Pace()

    def say(self, message: str) -> None:
        say_progress(message)

    def far(self, name: str, doing: str, done: int, total: int) -> None:
        now = time.monotonic()
        self._pace.mark(name, doing, done, now)
        if now < self._next:
            return
        self._next = now + _LINE_S
        pace = self._pace.text(total)
        self.say(f"{name}: {doing} {size_text(done)} of {size_text(total)}{pace}")


class Terminal(Quiet):
    """A line that is redrawn, and replaced by what else is printed."""

    def __init__(self) -> None:
        self._drawn = -_REDRAW_S
        self._pace = _Pace()

    def say(self, message: str) -> None:
        say_progress(message)

    def far(self, name: str, doing: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._drawn < _REDRAW_S:
            return
        self._drawn = now
        self._pace.mark(name, doing, done, now)
        part = min(done / max(total, 1), 1)
        far = f"{part:4.0%} of {size_text(total)}{self._pace.text(total)}"
        draw(_fitting(name, doing, part, far))

    def clear(self) -> None:
        clear()


def _fitting(name: str, doing: str, part: float, far: str) -> str:
    """Return the line. On a narrow terminal the bar is cut first, then the name, then the rate."""
    import shutil

    columns = shutil.get_terminal_size().columns - 1 - _CTRL_C
    rest = columns - len(f"ce: : {doing} ")
    while ", " in far and len(far) > rest - _SHORTEST_NAME:
        far = far.rpartition(", ")[0]
    room = rest - max(len(far), _FAR)
    width = min(room - min(len(name), _NAME) - len("[] "), _LONGEST_BAR)
    bar = ""
    if width >= _SHORTEST_BAR:
        bar = f"[{'#' * int(part * width):-<{width}}] "
    short = shortened(name, max(room - len(bar), _SHORTEST_NAME))
    return f"ce: {short}: {doing} {bar}{far}"[:columns]


def listener(*, quiet: bool = False) -> Quiet:
    if quiet:
        return Quiet()
    is_drawing = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return Terminal() if is_drawing else Log()
