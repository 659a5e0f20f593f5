"""End a program by the signal that interrupts it, after it has tidied up, and without a word."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from container_engine.printing import messages

if TYPE_CHECKING:
    from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_USUAL = (signal.SIG_DFL, signal.default_int_handler)  # nohup ignores SIGHUP


class _Ended:
    number = 0  # of the signal that ends this process


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let interrupts through, and end by them.

    ce-start has blocked Ctrl-C, because Python would print which of its imports was interrupted.
    """
    try:
        try:
            for number in _NUMBERS:
                if signal.getsignal(number) in _USUAL:
                    signal.signal(number, _end)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            yield
            raise_again()
        finally:
            _let_kill()
    except KeyboardInterrupt:
        die_of(_Ended.number or signal.SIGINT)


def _let_kill() -> None:
    """Let signals end this process at once from now on, while Python shuts down."""
    for number in _NUMBERS:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_DFL)


def raise_again() -> None:
    """Raise KeyboardInterrupt if one is behind an exception.

    For pydantic's Rust one in a pattern means that the text does not match; it wraps others.
    """
    if _Ended.number:
        raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> None:
    _Ended.number = number
    if _imports(frame):  # pydantic's Rust panics at an exception there, and says so
        die_of(number)
    sys.unraisablehook = lambda _error: None
    raise KeyboardInterrupt


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def _is_in_foreground() -> bool:
    """Check whether the terminal is this program's.

    salloc ends at once on Ctrl-C, before its planner: by then the line may be a shell's prompt.
    """
    try:
        return os.tcgetpgrp(2) == os.getpgrp()
    except OSError:  # no terminal
        return False


def die_of(number: int) -> None:
    """End as a program without Python would, so that shells and scripts see the signal."""
    if _is_in_foreground():
        messages.clear()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
