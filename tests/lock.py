"""Lock that allows one test run at a time in a sandbox; a second one waits for a limited time."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

WAIT_S = 600
_PAUSE_S = 0.5


@contextmanager
def alone_on(
    directory: Path, say: Callable[[str], None], within_s: float = WAIT_S
) -> Iterator[None]:
    """Hold the sandbox in `directory`; the lock ends with the process in any case.

    Raise AssertionError if another test run holds it for `within_s` seconds.
    """
    directory.mkdir(parents=True, exist_ok=True)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not _taken(fd):
            say(f"another test run uses {directory}, waiting for at most {within_s:g} s")
            _wait(fd, directory, within_s)
        yield
    finally:
        os.close(fd)


def _wait(fd: int, directory: Path, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not _taken(fd):
        if time.monotonic() > deadline:
            raise AssertionError(f"another test run has used {directory} for {within_s:g} s")
        time.sleep(_PAUSE_S)


def _taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
