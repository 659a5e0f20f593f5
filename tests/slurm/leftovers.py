"""Find what a container must not leave on a node."""

import pwd
from contextlib import suppress
from pathlib import Path

from tests.slurm import procfs
from tests.slurm.cluster import ALICE, BOB, Cluster
from tests.slurm.polling import until
from tests.slurm.procfs import Process

_SESSION = "container-engine/session"
_OF_EPILOG = "container-engine/epilog"
_HELPERS = ("ce-image", "conmon", "podman", "crun", "ce-guard", ".ce-init")
# Where Podman keeps records of a container by default. What it knows of registries is in the same
# directories and may stay.
_RECORDS = (
    ".local/share/containers/storage",
    ".config/containers/storage.conf",
    ".cache/containers",
)
_PUBLIC = ("/tmp", "/var/tmp", "/dev/shm", "/run/user")


def _uids() -> list[int]:
    return [pwd.getpwnam(user).pw_uid for user in (ALICE, BOB)]


def is_helper(process: Process) -> bool:
    ours = process.comm in _HELPERS or "libexec/container-engine/" in process.command
    # The epilog, which runs as root and as the user after the last step, is slow on a busy machine.
    return ours and _OF_EPILOG not in process.command


def helpers() -> list[Process]:
    """Return the living processes that hold containers, of all the sandbox's users."""
    return [process for process in procfs.living(*_uids()) if is_helper(process)]


def _processes() -> list[str]:
    return [
        f"process {process.pid}: {process.command or process.comm}"
        for process in procfs.living(*_uids())
        if is_helper(process) or _SESSION in process.mounts()
    ]


def mounts() -> list[str]:
    """Return the engine's mounts in the nodes' mount namespace; other mounts come and go."""
    text = Path("/proc/self/mountinfo").read_text()
    return [f"mount: {line}" for line in text.splitlines() if _SESSION in line]


def _open_namespaces() -> list[str]:
    """Return mount namespaces that a slurmstepd holds open and thus alive."""
    found = []
    for process in procfs.processes():
        if process.command.startswith("slurmstepd"):
            links = process.open_files()
            found += [f"{link} open in {process.command}" for link in links if "mnt:[" in link]
    return found


def records(cluster: Cluster) -> frozenset[Path]:
    """Return Podman's records in the users' homes; they may have used Podman before."""
    paths = (cluster.home(user) / name for user in (ALICE, BOB) for name in _RECORDS)
    return frozenset(path for path in paths if path.exists())


def foreign(cluster: Cluster) -> set[Path]:
    """Return paths in the users' homes, up to two levels down, that are not the users' own."""
    homes = {cluster.home(user): pwd.getpwnam(user).pw_uid for user in (ALICE, BOB)}
    return {
        path
        for home, uid in homes.items()
        for pattern in ("*", "*/*")
        for path in home.glob(pattern)
        if _owner(path) not in {uid, None}
    }


def _files(cluster: Cluster) -> list[str]:
    session = cluster.prefix / "libexec" / "container-engine" / "session"
    found = [f"directory: {path}" for path in session.iterdir()]
    return found + [f"record: {path}" for path in records(cluster) - cluster.records]


def public_files() -> set[Path]:
    """Return the test users' files in directories that everybody may write.

    Answers are left out, as they are for later starts.
    """
    uids = _uids()
    return {
        path
        for directory in map(Path, _PUBLIC)
        if directory.is_dir()
        for path in directory.iterdir()
        if _owner(path) in uids and not path.name.startswith("ce-answers-")
    }


def bytes_below(directory: str) -> int:
    """Return what the test users' files below a directory occupy; others' come and go."""
    uids = _uids()
    occupied = 0
    for path in Path(directory).rglob("*"):
        with suppress(OSError):  # removed in the meantime
            status = path.lstat()
            occupied += status.st_blocks * 512 if status.st_uid in uids else 0
    return occupied


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return None  # removed in the meantime


def left(cluster: Cluster) -> list[str]:
    """Return everything of containers that exists now; empty when no step runs."""
    return [*_processes(), *mounts(), *_open_namespaces(), *_files(cluster)]


def steps() -> list[str]:
    """Return the titles of the slurmstepds that run."""
    return [p.command for p in procfs.processes() if p.lives and p.comm == "slurmstepd"]


def assert_nothing_left(cluster: Cluster) -> None:
    """Fail unless everything of all containers is gone after the last step has ended.

    srun can end before its step: tasks that ignore SIGTERM have Slurm's KillWait to end.
    """
    until("steps to end", lambda: not steps(), 20)
    assert_soon_nothing_left(cluster)


def assert_soon_nothing_left(cluster: Cluster, within_s: float = 2) -> None:
    """Fail unless everything of all containers is gone in time, even if their steps live on."""
    there: list[str] = []

    def is_gone() -> bool:
        there[:] = left(cluster)
        return not there

    try:
        until("everything to be gone", is_gone, within_s)
    except AssertionError:
        raise AssertionError(f"still there after {within_s:g} s: {there}") from None
