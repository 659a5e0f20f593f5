"""Processes, mounts and files that a container must not leave behind."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PUBLIC = ("/tmp", "/var/tmp", "/dev/shm", "/run/user")
_SESSION = "container-engine/session"
_WITHIN_S = 30.0


def processes(uid: int) -> Iterator[Path]:
    """Yield /proc/PID of each of the user's processes that is not a zombie."""
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            status = (path / "status").read_text()
        except OSError:
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if fields["Uid"].split()[0] == str(uid) and fields["State"][0] not in "ZX":
            yield path


def command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def comm(process: Path) -> str:
    """Return the name of a process, or "" if it has just ended."""
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return ""


def _mounts() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if _SESSION in line]


def _files(uid: int) -> set[Path]:
    found = (path for top in map(Path, _PUBLIC) if top.is_dir() for path in top.iterdir())
    # answers are for later starts
    return {p for p in found if _owner(p) == uid and not p.name.startswith("ce-answers-")}


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except OSError:
        return None


def until(ask: Callable[[], bool], within_s: float = _WITHIN_S) -> bool:
    """Poll until `ask` returns true; return False if the time is up."""
    deadline = time.monotonic() + within_s
    while not ask():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@dataclass(frozen=True)
class Leftovers:
    """A user's processes and files in public directories, before a command is run."""

    uid: int
    pids: frozenset[str]
    files: frozenset[Path]

    @classmethod
    def of(cls, uid: int) -> "Leftovers":
        pids = frozenset(path.name for path in processes(uid))
        return cls(uid, pids, frozenset(_files(uid)))

    def left(self) -> list[str]:
        """Return what exists now and did not exist before."""
        new = [path for path in processes(self.uid) if path.name not in self.pids]
        found = [f"process {path.name}: {command_line(path)}" for path in new if _ours(path)]
        found += [f"mount: {line}" for line in _mounts()]
        return found + [f"file: {path}" for path in _files(self.uid) - self.files]

    def check(self) -> None:
        assert until(lambda: not self.left()), self.left()


def _ours(process: Path) -> bool:
    """Check whether a process belongs to an engine's session.

    Other processes of the user may come and go.
    """
    try:
        mounts = (process / "mountinfo").read_text(errors="replace")
    except OSError:
        return False
    command = command_line(process)
    return _SESSION in mounts or "libexec/container-engine" in command or "/bin/ce" in command
