"""Files that appear whole, and directories that only one process uses at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import time
from typing import TYPE_CHECKING

from container_engine.errors import UserError
from container_engine.process import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLL_S = 0.2


def publish(path: str, content: bytes) -> None:
    """`path` has its old content or the new one, never a part. Raises OSError."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    draft = f"{path}.{socket.gethostname()}.{os.getpid()}"
    try:
        with open(draft, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


@contextlib.contextmanager
def fresh_directory(path: str) -> Iterator[str]:
    """An empty directory, gone afterwards. What a killed process left there is removed."""
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path, mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def locked(path: str, timeout_s: float, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Holds the lock file `path`; waits up to `timeout_s` seconds, calling `on_wait` once.

    It is told who has the lock. The kernel frees it when its holder ends, in whatever way.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a+", encoding="utf-8") as file:
        _acquire(file.fileno(), path, timeout_s, on_wait)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def _acquire(fd: int, path: str, timeout_s: float, on_wait: Callable[[str], None]) -> None:
    deadline = time.monotonic() + timeout_s
    waited = False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(path)
        except OSError as error:
            raise UserError(f"'{path}': cannot be locked: {reason(error)}") from None
        else:
            return
        if time.monotonic() > deadline:
            raise UserError(f"'{path}': still locked by {holder} after {timeout_s:g} s")
        if not waited:
            on_wait(holder)
        waited = True
        time.sleep(_POLL_S)


def _holder(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip() or "another process"
    except OSError:
        return "another process"
