"""Waiting for what nobody announces: ask until it is so, not for ever."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_PAUSE_S = 0.02


def until(what: str, ask: Callable[[], T | None], within_s: float = 20) -> T:
    """The first true answer; the test fails when there is none within the time."""
    deadline = time.monotonic() + within_s
    while True:
        # before the question: this process may have stood still in between
        is_late = time.monotonic() > deadline
        answer = ask()
        if answer:
            return answer
        if is_late:
            raise AssertionError(f"waited {within_s:g} s for {what}; last answer: {answer!r}")
        time.sleep(_PAUSE_S)
