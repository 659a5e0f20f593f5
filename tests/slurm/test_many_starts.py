"""Many starts in a row and at once leave no process, mount, namespace or file behind.

The daemons must not grow. SOAK_LAUNCHES is the number of launches of the long test.
"""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.slurm import procfs
from tests.slurm.cluster import ALICE, BOB, Cluster
from tests.slurm.job import started
from tests.slurm.leftovers import assert_nothing_left, bytes_below, mounts, public_files
from tests.slurm.polling import until

_BATCH = 50  # launches of one job
_AT_ONCE = 50
_MIB = 1 << 20
_OPENED = 8  # descriptors that Slurm may open at any time, for short connections
_NAMESPACES = ("mnt", "user", "pid", "ipc", "uts", "net", "cgroup")
_IN_MEMORY = [path for path in ("/dev/shm", "/run") if os.path.ismount(path)]


class Levels(NamedTuple):
    """Quantities that must not grow with launches.

    `memory` and `descriptors` are per slurmd.
    """

    memory: dict[str, int]  # bytes, resident
    descriptors: dict[str, int]
    mounts: int
    namespaces: int
    files: frozenset[Path]  # of the test users, in public directories
    used: dict[str, int]  # bytes of the test users' files on file systems in memory


def _levels() -> Levels:
    daemons = [p for p in procfs.processes() if p.comm == "slurmd" and p.lives]
    return Levels(
        {p.command: _resident(p.pid) for p in daemons},
        {p.command: len(os.listdir(procfs.PROC / str(p.pid) / "fd")) for p in daemons},
        len(mounts()),
        # The links of a process that ends in the meantime cannot be read.
        len({p.link(f"ns/{kind}") for p in procfs.processes() for kind in _NAMESPACES} - {""}),
        frozenset(public_files()),
        {path: bytes_below(path) for path in _IN_MEMORY},
    )


def _resident(pid: int) -> int:
    return int((procfs.PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf(
        "SC_PAGE_SIZE"
    )


def _levels_at_rest(before: Levels) -> Levels:
    """Return the levels after the last jobs' own programs on the node have ended.

    slurmd's messages about them must have ended, too.
    """

    def at_rest() -> Levels | None:
        levels = _levels()
        closed = all(
            count <= before.descriptors[daemon] + _OPENED
            for daemon, count in levels.descriptors.items()
        )
        return levels if closed and levels.namespaces <= before.namespaces else None

    return until("as few namespaces and descriptors as before", at_rest)


def _assert_flat(before: Levels, after: Levels) -> None:
    assert after.mounts <= before.mounts
    assert after.namespaces <= before.namespaces
    assert after.files == before.files
    assert set(after.memory) == set(before.memory)
    for daemon, memory in after.memory.items():
        # Allows for Slurm's own caches; a leak of a hundred bytes per launch exceeds it.
        assert memory <= before.memory[daemon] + 2 * _MIB, f"{daemon}: {memory}"
        assert after.descriptors[daemon] <= before.descriptors[daemon] + _OPENED, daemon
    assert after.used == before.used


def _start(cluster: Cluster, edf: str, number: int) -> None:
    """Start one step: some with several tasks, as another user, or with a failing command."""
    code = 3 if number % 5 == 4 else 0
    user = BOB if number % 7 == 6 else ALICE
    tasks = ["-N2", "-n4"] if number % 3 == 0 else ["-n1"]
    script = f"[ -e /etc/os-release ] && exit {code}; exit 99"
    done = cluster.srun(*tasks, f"--environment={edf}", "sh", "-c", script, user=user)
    assert done.returncode == code, done.stderr


def test_20_starts_in_a_row_leave_nothing(cluster: Cluster, demo: str) -> None:
    _start(cluster, demo, 0)
    assert_nothing_left(cluster)
    before = _levels()
    for number in range(20):
        _start(cluster, demo, number)
    assert_nothing_left(cluster)
    _assert_flat(before, _levels_at_rest(before))


def _batch(cluster: Cluster, edf: str, count: int) -> None:
    """Run the launches of one job in sequence, and count their output."""
    launch = f"srun --quiet --environment={edf}"
    inside = "sh -c 'grep -q ID=ce-demo /etc/os-release && echo inside'"
    lines = [f"{launch} {'-N2 -n4' if i % 5 == 0 else '-N1 -n1'} {inside}" for i in range(count)]
    tasks = sum(4 if i % 5 == 0 else 1 for i in range(count))
    argv = ["salloc", "--quiet", "-N2", "sh", "-c", "\n".join(lines)]
    done = cluster.run(argv, timeout=60 * count)
    assert done.stdout.split() == ["inside"] * tasks, done.stderr


@pytest.mark.soak
def test_thousands_of_starts_in_a_row_leave_nothing(cluster: Cluster, demo: str) -> None:
    batches = max(2, int(os.environ.get("SOAK_LAUNCHES") or 2000) // _BATCH)
    # Create first what is only created once.
    _batch(cluster, demo, _BATCH)
    assert_nothing_left(cluster)
    levels = [_levels()]
    for _ in range(batches):
        _batch(cluster, demo, _BATCH)
        assert_nothing_left(cluster)
        levels.append(_levels_at_rest(levels[0]))
        memory = ", ".join(f"{value / _MIB:.1f}" for value in levels[-1].memory.values())
        print(f"{(len(levels) - 1) * _BATCH} launches: slurmd {memory} MiB", flush=True)
    _assert_flat(levels[0], levels[-1])
    _assert_flat(levels[len(levels) // 2], levels[-1])


def _is_epilog(process: procfs.Process) -> bool:
    return process.lives and "container-engine/epilog" in process.command


def _wave(cluster: Cluster, edf: str, before: Levels) -> Levels:
    """Run jobs that are all alive at once; return the levels after they have ended."""
    with ExitStack() as stack:
        script = "grep -q ID=ce-demo /etc/os-release && echo up; read line; echo $line"
        step = ["srun", "-N1", "-n1", f"--environment={edf}", "sh", "-c", script]
        jobs = [stack.enter_context(started(cluster, *step)) for _ in range(_AT_ONCE)]
        for job in jobs:
            job.wait_for_lines(1, within_s=300)
        alive = [p for p in procfs.processes() if p.comm == ".ce-init" and p.lives]
        assert len(alive) == _AT_ONCE
        for number, job in enumerate(jobs):
            job.write(f"job {number}\n")
            job.close_input()
        for number, job in enumerate(jobs):
            done = job.wait(120)
            assert done.stdout == f"up\njob {number}\n", done.stderr
    # An epilog runs for each job, as its user, and inspects every process.
    until("the epilogs", lambda: not [p for p in procfs.processes() if _is_epilog(p)], 120)
    assert_nothing_left(cluster)
    return _levels_at_rest(before)


@pytest.mark.soak
def test_50_containers_at_once_run_and_leave_nothing(cluster: Cluster, demo: str) -> None:
    before = _levels()
    # slurmd keeps memory for its peak number of threads, which the second wave reuses.
    first = _wave(cluster, demo, before)
    _assert_flat(before._replace(memory=first.memory), first)
    _assert_flat(first, _wave(cluster, demo, first))
