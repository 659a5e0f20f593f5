"""The sandbox's processes, read from /proc."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ce_sandbox.layout import from_environment
from ce_sandbox.processes import belonging_to

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    pid: int
    uid: int
    state: str
    parent: int
    comm: str
    command: str

    @property
    def lives(self) -> bool:
        """False for a zombie, which its parent or the machine's init has yet to reap."""
        return self.state not in "ZX"

    @property
    def is_first(self) -> bool:
        """Check that it is process 1 of a PID namespace, as the guard is, but not who starts it."""
        return self.status().get("NSpid", "").endswith("\t1")

    def environment(self) -> dict[str, str]:
        try:
            block = (PROC / str(self.pid) / "environ").read_bytes()
        except OSError:
            return {}
        pairs = (entry.decode(errors="replace").partition("=") for entry in block.split(b"\0"))
        return {name: value for name, _equals, value in pairs}

    def mounts(self) -> str:
        try:
            return (PROC / str(self.pid) / "mountinfo").read_text(errors="replace")
        except OSError:
            return ""

    def link(self, name: str) -> str:
        try:
            return os.readlink(PROC / str(self.pid) / name)
        except OSError:
            return ""

    def status(self) -> dict[str, str]:
        """Return the kernel's status fields of the process; empty if it has ended."""
        try:
            text = (PROC / str(self.pid) / "status").read_text(errors="replace")
        except OSError:
            return {}
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)

    def cgroups(self) -> dict[str, str]:
        """Return the process's cgroup by controller; "" is the unified hierarchy.

        Raise OSError if the process has ended.
        """
        text = (PROC / str(self.pid) / "cgroup").read_text()
        rows = (line.split(":", 2) for line in text.splitlines())
        return {name: path for _id, names, path in rows for name in names.split(",")}

    def open_files(self) -> list[str]:
        """Return the targets of its descriptors.

        A descriptor closed in the meantime is ""; the list is empty if the process has ended.
        """
        try:
            names = os.listdir(PROC / str(self.pid) / "fd")
        except OSError:
            return []
        return [self.link(f"fd/{name}") for name in names]


def process(pid: int) -> Process | None:
    """Return the process with this pid, or None if it does not exist."""
    path = PROC / str(pid)
    try:
        stat = (path / "stat").read_text(errors="replace")
        command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        uid = path.stat().st_uid
        status = (path / "status").read_text(errors="replace")
    except OSError:
        return None
    comm, _, rest = stat.partition("(")[2].rpartition(")")
    # /proc/PID belongs to root if the process is not dumpable; its status has the real uid.
    real = [line.split()[1] for line in status.splitlines() if line.startswith("Uid:")]
    state, parent = rest.split()[:2]
    return Process(pid, int(real[0]) if real else uid, state, int(parent), comm, command.strip())


def processes() -> Iterator[Process]:
    """Yield the processes of the sandbox: its daemons, its users', and what these started.

    A machine may have a Slurm of its own, whose daemons and jobs must be left alone, and another
    sandbox in namespaces of its own, as `make check-debian13` has.
    """
    yield from filter(None, map(process, belonging_to(from_environment(os.environ))))


def waiting(*uids: int) -> str:
    """Describe these users' processes and what each waits for in the kernel."""
    lines = []
    for found in sorted(living(*uids), key=lambda process: process.pid):
        try:
            where = (PROC / str(found.pid) / "wchan").read_text()
        except OSError:
            where = "?"
        lines.append(f"{found.parent} {found.pid} {found.state} {where} {found.command}")
    return "\n".join(lines)


def living(*uids: int) -> list[Process]:
    """Return the processes of these users except zombies."""
    return [found for found in processes() if found.uid in uids and found.lives]
