"""Audit of what the interpreter must never do while it reads an EDF."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_STARTING = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"} | {
    "subprocess.Popen",
    "pty.spawn",
}
_CONNECTING = {"socket.connect", "socket.getaddrinfo", "urllib.Request"}
_noted: list[str] = []


def _watch(event: str, _arguments: tuple[object, ...]) -> None:
    if event in _STARTING or event in _CONNECTING:
        _noted.append(event)


# An audit hook cannot be removed, so it only takes notes.
sys.addaudithook(_watch)


@contextmanager
def nothing_started() -> Iterator[None]:
    """Fail if a process is started or the network is used within the block."""
    _noted.clear()
    yield
    assert not _noted
