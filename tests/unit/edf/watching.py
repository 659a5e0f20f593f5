"""Notes what the interpreter does that reading an EDF must never do."""

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


# a hook can never be removed again, so it only takes notes
sys.addaudithook(_watch)


@contextmanager
def nothing_started() -> Iterator[None]:
    """Fails where a process is started or the network is asked in between."""
    _noted.clear()
    yield
    assert not _noted
