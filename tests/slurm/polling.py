"""Polling with a time limit, for events that nothing announces."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_PAUSE_S = 0.02


def until(what: str, ask: Callable[[], T | None], within_s: float = 20) -> T:
    """Return the first true answer; fail the test if there is none within the time."""
    deadline = time.monotonic() + within_s
    while True:
        # Taken before the question, as this process may have been suspended in between.
        is_late = time.monotonic() > deadline
        answer = ask()
        if answer:
            return answer
        if is_late:
            raise AssertionError(f"waited {within_s:g} s for {what}; last answer: {answer!r}")
        time.sleep(_PAUSE_S)
