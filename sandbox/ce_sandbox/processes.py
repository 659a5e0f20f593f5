"""Find the sandbox's processes in /proc, where no pid file can be stale."""

import fcntl
import os
import pwd
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ce_sandbox.layout import Layout

# linux/nsfs.h
_NS_GET_USERNS = 0xB701
_NS_GET_PARENT = 0xB702
_NS_GET_OWNER_UID = 0xB704


def _all_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _argv(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def running(command_lines: Iterable[list[str]]) -> dict[int, list[str]]:
    """Return the processes that run exactly one of these command lines, in this PID namespace.

    A process of another PID namespace belongs to another sandbox, even though its command line is
    equal: the directories of both have the same path (`tests/apart`).
    """
    wanted = {tuple(line) for line in command_lines}
    found = {pid: argv for pid in _all_pids() if tuple(argv := _argv(pid)) in wanted}
    return {pid: argv for pid, argv in found.items() if _is_of(pid, set())}


def is_running(pid: int, command_line: list[str]) -> bool:
    """Check whether this process runs exactly this command line."""
    return _argv(pid) == command_line


def belonging_to(layout: Layout) -> set[int]:
    """Return every process of the sandbox except this process and its ancestors.

    A process belongs to the sandbox if it is a daemon of Slurm or munge with a file of the sandbox
    open (each has its log open), if it runs as one of the sandbox's users, if it was started with
    the cluster's configuration in its environment, or if one of its ancestors belongs to it.
    Processes of another sandbox, which has a PID namespace and perhaps the same directory, do not.
    """
    uids = _sandbox_uids(layout)
    marker = b"SLURM_CONF=" + os.fsencode(layout.slurm_conf)
    parents = {pid: parent for pid in _all_pids() if (parent := _parent(pid)) is not None}
    ours = _ancestors(os.getpid(), parents)
    found = {
        pid
        for pid in parents
        if pid not in ours
        and (_uid(pid) in uids or _is_daemon(pid, layout.dir) or marker in _environment(pid))
        and _is_of(pid, uids)
    }
    for pid in sorted(parents):
        if pid not in ours and not found.isdisjoint(_ancestors(pid, parents) - {pid}):
            found.add(pid)
    return found


def _sandbox_uids(layout: Layout) -> set[int]:
    return {
        entry.pw_uid
        for entry in pwd.getpwall()
        if entry.pw_name in layout.users and entry.pw_dir == str(layout.home(entry.pw_name))
    }


def _is_of(pid: int, uids: set[int]) -> bool:
    """Check if a process is in this PID namespace, or one that these users made in it.

    Users make such a namespace for a container. A process that is gone is in none.
    """
    try:
        fd = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY)
    except OSError:
        return False
    here = os.stat("/proc/self/ns/pid").st_ino
    while os.fstat(fd).st_ino != here:
        is_theirs = _owner(fd) in uids
        try:
            parent = fcntl.ioctl(fd, _NS_GET_PARENT) if is_theirs else -1
        except PermissionError:
            # the parent is outside of this namespace
            parent = -1
        os.close(fd)
        if parent < 0:
            return False
        fd = parent
    os.close(fd)
    return True


def _owner(namespace: int) -> int:
    """Return the user who made the user namespace to which a namespace belongs."""
    user = fcntl.ioctl(namespace, _NS_GET_USERNS)
    try:
        uid = fcntl.ioctl(user, _NS_GET_OWNER_UID, bytes(4))
    finally:
        os.close(user)
    return int.from_bytes(uid, sys.byteorder)


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    """Return `pid` and all its ancestors except init."""
    line: set[int] = set()
    while pid > 1 and pid not in line:
        line.add(pid)
        pid = parents.get(pid, 0)
    return line


def _parent(pid: int) -> int | None:
    """Return the parent of a living process; None if the process is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]
    return None if state in "ZX" else int(parent)


def _uid(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def _environment(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def _is_daemon(pid: int, directory: Path) -> bool:
    fds = f"/proc/{pid}/fd"
    try:
        if not Path(f"/proc/{pid}/comm").read_text().startswith(("slurm", "munged")):
            return False
        names = os.listdir(fds)
    except OSError:
        return False
    return any(_link(f"{fds}/{name}").startswith(f"{directory}/") for name in names)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def stop(pids: Iterable[int], signum: signal.Signals, timeout_s: float) -> None:
    """Signal the processes and wait at most `timeout_s` seconds until they are gone.

    Pids that no longer exist are ignored. A zombie whose parent does not wait for it counts as
    gone.
    """
    waiting: dict[int, int] = {}
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        waiting[fd] = pid
    try:
        for fd in waiting:
            _signal(fd, signum)
        _wait(waiting, timeout_s)
    finally:
        for fd in waiting:
            os.close(fd)


def _signal(pidfd: int, signum: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signum)
    except ProcessLookupError:
        return


def _wait(pidfds: Iterable[int], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    poll = select.poll()
    left = set(pidfds)
    for fd in left:
        poll.register(fd, select.POLLIN)
    while left and (remaining := deadline - time.monotonic()) > 0:
        for fd, _ in poll.poll(remaining * 1000):
            poll.unregister(fd)
            left.discard(fd)
