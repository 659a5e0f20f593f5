"""Progress of an import: a bar on a terminal, a line from time to time in a log, or nothing."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import deque

from container_engine.base.text_layout import duration_text, shortened, size_text
from container_engine.images.listener import Quiet
from container_engine.printing import messages

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
        messages.say_progress(message)

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
        messages.say_progress(message)

    def far(self, name: str, doing: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._drawn < _REDRAW_S:
            return
        self._drawn = now
        self._pace.mark(name, doing, done, now)
        part = min(done / max(total, 1), 1)
        far = f"{part:4.0%} of {size_text(total)}{self._pace.text(total)}"
        messages.draw(_fitting(name, doing, part, far))

    def clear(self) -> None:
        messages.clear()


def _fitting(name: str, doing: str, part: float, far: str) -> str:
    """Return the line. On a narrow terminal the bar is cut first, then the name, then the rate."""
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
