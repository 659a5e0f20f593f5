"""Progress of an import: a bar on a terminal, a line from time to time in a log, or nothing."""

from __future__ import annotations

import shutil
import sys
import time

from container_engine import message_text
from container_engine.cli.printing import messages
from container_engine.images.fetch.listener import Quiet
from container_engine.images.store.files import size_text

_REDRAW_S, _LINE_S = 0.1, 10.0
_BAR = 24
_SHORTEST = 8


class Log(Quiet):
    """Progress lines for files that are read later."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _LINE_S

    def say(self, message: str) -> None:
        messages.say_progress(message)

    def far(self, name: str, doing: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _LINE_S
        self.say(f"{name}: {doing} {size_text(done)} of {size_text(total)}")


class Terminal(Quiet):
    """A line that is redrawn, and cleared before something else is printed."""

    def __init__(self) -> None:
        self._drawn = 0.0

    def say(self, message: str) -> None:
        self.clear()
        messages.say_progress(message)

    def far(self, name: str, doing: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._drawn < _REDRAW_S:
            return
        self._drawn = now
        part = min(done / max(total, 1), 1)
        bar = f"{'#' * int(part * _BAR):-<{_BAR}}"
        text = f": {doing} [{bar}] {part:4.0%} of {size_text(total)}"
        room = shutil.get_terminal_size().columns - len(f"ce: {text}") - 1
        messages.say(f"\r\033[Kce: {message_text.shortened(name, max(room, _SHORTEST))}{text}")

    def clear(self) -> None:
        if self._drawn:
            messages.say("\r\033[K")
            self._drawn = 0.0


def listener(*, quiet: bool = False) -> Quiet:
    if quiet:
        return Quiet()
    return Terminal() if sys.stderr.isatty() else Log()
