"""Many starts in a row leave nothing: no process, mount, file or growing daemon."""

import os
from pathlib import Path

import pytest

from tests.slurm import procfs
from tests.slurm.cluster import ALICE, BOB, Cluster
from tests.slurm.leftovers import assert_nothing_left, public_files


def _descriptors_of_daemons() -> dict[str, int]:
    """How many files each slurmd and the controller have open."""
    return {
        process.command: len(os.listdir(Path("/proc") / str(process.pid) / "fd"))
        for process in procfs.processes()
        if process.comm in {"slurmd", "slurmctld"}
    }


def _start(cluster: Cluster, edf: str, number: int) -> None:
    """One start; some of them with several tasks, of another user, or of a command that fails."""
    code = 3 if number % 5 == 4 else 0
    user = BOB if number % 7 == 6 else ALICE
    tasks = ["-N2", "-n4"] if number % 3 == 0 else ["-n1"]
    script = f"[ -e /etc/os-release ] && exit {code}; exit 99"
    done = cluster.srun(*tasks, f"--environment={edf}", "sh", "-c", script, user=user)
    assert done.returncode == code, done.stderr


def _starts(cluster: Cluster, edf: str, count: int) -> None:
    _start(cluster, edf, 0)
    assert_nothing_left(cluster)
    files, descriptors = public_files(), _descriptors_of_daemons()
    for number in range(count):
        _start(cluster, edf, number)
    assert_nothing_left(cluster)
    assert public_files() == files
    after = _descriptors_of_daemons()
    assert set(after) == set(descriptors)
    # Slurm opens a few as it likes, for connections that come and go
    assert all(after[name] <= descriptors[name] + 8 for name in after)


def test_20_starts_in_a_row_leave_nothing(cluster: Cluster, demo: str) -> None:
    _starts(cluster, demo, 20)


@pytest.mark.soak
def test_200_starts_in_a_row_leave_nothing(cluster: Cluster, demo: str) -> None:
    _starts(cluster, demo, 200)
