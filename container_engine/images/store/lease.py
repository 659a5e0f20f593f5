"""A lock on a shared file system that needs no flock: a file that its holder keeps fresh.

The file names the holder and its progress, and has a counter that rises while the holder lives. A
waiter that sees no change for `stale_s` seconds by its own clock takes the lock over; the clocks of
other hosts are not compared with it. A dead holder on the same host is noticed at once.

A lease saves work but does not keep a store consistent. A holder that was suspended for long may
resume after a takeover, and what it publishes then must do no harm.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from container_engine.base import records
from container_engine.base.errors import UserError
from container_engine.base.files import files_of, is_older, now_at, publish
from container_engine.base.process import reason

_SIZE = 768  # bytes, so that the holder overwrites its file with one write
_MAX_PROGRESS = 200
_OWNER = "owner"  # the file in a directory that names its owner
_SILENT_S = 600  # for a process that looks at a lock only once; by the file server's clock
_FIRST_POLL_S, _LONGEST_POLL_S, _SLOWER = 0.05, 1.0, 1.5


class Pace(NamedTuple):
    """The interval of a holder's heartbeats, and the silence after which it counts as dead."""

    beat_s: float = 3
    stale_s: float = 45


PACE = Pace()


class Holder(NamedTuple):
    """The content of a lock file. `machine` identifies a host, its boot and a PID namespace."""

    token: str
    user: str = ""
    host: str = ""
    machine: str = ""
    pid: int = 0
    start: str = ""
    since: float = 0
    beat: int = 0
    progress: str = ""

    def __str__(self) -> str:
        return f"{self.user} on {self.host} (process {self.pid})" if self.pid else "somebody"

    def is_dead(self, machine: str) -> bool:
        """Check whether the process is known to have ended; False if it cannot be seen."""
        if not self.pid or self.machine != machine:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        # one that has ended stays in state Z or X until its parent reaps it
        return start_of(self.pid) not in {"", self.start} or _stat(self.pid, 0) in {"Z", "X"}


def this_process(user: str) -> Holder:
    pid = os.getpid()
    return Holder(
        token=f"{socket.gethostname()}-{pid}-{time.time_ns()}",
        user=user,
        host=socket.gethostname(),
        machine=this_machine(),
        pid=pid,
        start=start_of(pid),
        since=time.time(),
    )


def this_machine() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def start_of(pid: int) -> str:
    """Return when a process started, in ticks since the boot; "" if that cannot be read."""
    return _stat(pid, 19)


def _stat(pid: int, field: int) -> str:
    """Return a field of /proc/PID/stat, counted from the state; "" if that cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[field]
    except (OSError, IndexError):
        return ""


def read(path: str) -> Holder | None:
    """Return the holder of the lock, None if it is free, or a made-up one for an invalid file."""
    try:
        with open(path, "rb") as file:
            text, status = file.read(2 * _SIZE), os.fstat(file.fileno())
    except FileNotFoundError:
        return None
    try:
        return records.from_json(Holder, text)
    except ValueError:
        return Holder(token=f"damaged {status.st_ino} {status.st_mtime_ns}")


def note_owner(directory: str, owner: Holder) -> None:
    """Record whose directory this is, for `is_abandoned`. Raise OSError."""
    publish(os.path.join(directory, _OWNER), records.to_json(owner))


def is_abandoned(directory: str, silent_s: float) -> bool:
    """Check whether the recorded owner of a directory has ended. Raise OSError.

    On another host it counts as alive until the directory's time is `silent_s` seconds old.
    """
    owner, machine = read(os.path.join(directory, _OWNER)), this_machine()
    if owner is not None and owner.machine == machine:
        return owner.is_dead(machine)
    return now_at(os.path.dirname(directory)) - os.stat(directory).st_mtime > silent_s


class Found(NamedTuple):
    """A lock as another process sees it; `is_stale` if its holder died or was silent for long."""

    path: str
    holder: Holder
    is_stale: bool


def found_in(directory: str) -> Iterator[Found]:
    """Yield all locks in a directory. A killed holder leaves its lock until another wants it."""
    machine, paths = this_machine(), files_of(directory)
    now = now_at(directory) if paths else 0
    for path in paths:
        holder = read(path)
        if holder is not None:
            yield Found(path, holder, holder.is_dead(machine) or is_older(path, _SILENT_S, now))


class Lease:
    """A lock that this process holds. Put what has been done so far into `progress`."""

    def __init__(self, path: str, holder: Holder, pace: Pace) -> None:
        self.path = path
        self.holder = holder
        self.progress = ""
        self.replaced: list[str] = []  # tokens of dead holders, whose work is to be cleaned up
        self._pace = pace
        self._ended = threading.Event()
        # a draft beside it, so that the lock has its content from its first moment
        self._draft = f"{path}.{holder.token}"
        self._fd = os.open(self._draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._thread = threading.Thread(target=self._keep_fresh, daemon=True)
        try:
            self._write(0)
        except BaseException:
            self.discard()
            raise

    def take(self) -> bool:
        """Take the lock if it is free, and keep it fresh; return whether it was taken."""
        try:
            os.link(self._draft, self.path)
        except OSError as error:
            # the file server may have made the link although its reply was lost
            if os.stat(self._draft).st_nlink != 2:
                return not isinstance(error, FileExistsError) and self._take_without_links()
        self._forget_draft()
        self._forget_dead_drafts()
        self._thread.start()
        return True

    def _take_without_links(self) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            fd = os.open(self.path, flags, 0o644)
        except FileExistsError:
            return False
        os.close(self._fd)
        self._fd = fd
        self._write(0)
        self._forget_draft()
        self._thread.start()
        return True

    def _forget_draft(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._draft)

    def _forget_dead_drafts(self) -> None:
        """Remove the drafts of processes that were killed while they waited."""
        directory, name = os.path.split(self.path)
        with contextlib.suppress(OSError):
            for other in os.listdir(directory):
                if not other.startswith(f"{name}."):
                    continue
                path = os.path.join(directory, other)
                found = read(path)
                if found is not None and found.is_dead(self.holder.machine):
                    with contextlib.suppress(OSError):
                        os.unlink(path)

    def is_held(self) -> bool:
        """Check that no other process took the lock over during a long pause of this one."""
        with contextlib.suppress(OSError):
            found = read(self.path)
            return found is not None and found.token == self.holder.token
        return True  # no process can take the lock over while the server is away

    def discard(self) -> None:
        """End the lease, whether or not the lock was taken. Locks of others are not touched."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._forget_draft()
        with contextlib.suppress(OSError):
            found = read(self.path)
            if found is not None and found.token == self.holder.token:
                os.unlink(self.path)
        with contextlib.suppress(OSError):
            os.close(self._fd)

    def take_over(self, dead: Holder) -> None:
        """Remove the lock if it is still that of `dead`."""
        aside = f"{self.path}.{self.holder.token}.dead"
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.path, aside)
            found = read(aside)
            if found is not None and found.token != dead.token:
                with contextlib.suppress(OSError):
                    os.link(aside, self.path)  # another process was quicker and keeps its lock
            else:
                self.replaced.append(dead.token)
            os.unlink(aside)

    def _keep_fresh(self) -> None:
        beat = 0
        while not self._ended.wait(self._pace.beat_s):
            beat += 1
            # if the disk is full or the server is away, waiters see no change
            with contextlib.suppress(OSError):
                self._write(beat)

    def _write(self, beat: int) -> None:
        now = self.holder._replace(beat=beat, progress=self.progress[:_MAX_PROGRESS])
        os.pwrite(self._fd, records.to_json(now)[:_SIZE].ljust(_SIZE), 0)
        os.fsync(self._fd)


@contextlib.contextmanager
def held(
    path: str,
    user: str,
    limit_s: float,
    on_wait: Callable[[Holder, float], None],
    pace: Pace = PACE,
    what: str = "",
) -> Iterator[Lease]:
    """Hold the lock `path`, which messages call `what`.

    While another process holds it, `on_wait` is called about once a second with the holder and the
    seconds waited so far. Raise UserError after `limit_s` seconds of waiting, and OSError if no
    lock can be created.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    lease = Lease(path, this_process(user), pace)
    try:
        _wait(lease, limit_s, on_wait, pace, what)
        yield lease
    finally:
        lease.discard()


def _wait(
    lease: Lease,
    limit_s: float,
    on_wait: Callable[[Holder, float], None],
    pace: Pace,
    what: str,
) -> None:
    began, pause = time.monotonic(), _FIRST_POLL_S
    seen, seen_at = None, began
    machine = this_machine()
    while True:
        holder = _read(lease.path)
        if holder is None:
            if lease.take():
                return
            continue
        now = time.monotonic()
        if seen is None or (holder.token, holder.beat) != (seen.token, seen.beat):
            seen, seen_at = holder, now
        if now - seen_at > pace.stale_s or holder.is_dead(machine):
            lease.take_over(holder)
            continue
        if now - began > limit_s:
            raise _too_long(lease.path, holder, limit_s, what)
        on_wait(holder, now - began)
        time.sleep(pause)
        pause = min(pause * _SLOWER, _LONGEST_POLL_S)


def _read(path: str) -> Holder | None:
    try:
        return read(path)
    except OSError as error:
        raise UserError(reason(error), see="store-unusable", name=path) from None


def _too_long(path: str, holder: Holder, limit_s: float, what: str) -> UserError:
    far = f", {holder.progress}" if holder.progress else ""
    whose = f"'{what}': " if what else ""
    return UserError(
        f"{whose}still running after {limit_s:g} s: {holder}{far}",
        f"if that is no longer so, remove {path}",
        "store-busy",
    )
