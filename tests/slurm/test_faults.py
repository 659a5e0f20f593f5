"""Whatever goes wrong while a step starts: the command runs in its container or not at all.

The seed is printed; FAULTS_SEED repeats a run, FAULTS_RUNS says how many rounds the long one has.
"""

import os
import pwd
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.slurm import faults
from tests.slurm.cluster import ALICE, BOB, Cluster
from tests.slurm.job import Job, started
from tests.slurm.leftovers import left
from tests.slurm.polling import until
from tests.slurm.procfs import processes

_GONE_WITHIN_S = 5
_SCRIPT = """
if grep -q 'Container Engine demo' /etc/os-release; then echo inside; else echo OUTSIDE; fi >> "$0"
sleep 0.3
"""


class _Round:
    """One start of two tasks with one fault, and what became of it."""

    def __init__(self, cluster: Cluster, shared: Path, seed: str) -> None:
        self._cluster = cluster
        self.fault = faults.choose(random.Random(seed))
        self._marker = shared / "marker"
        self._image = shared / "image.sqsh"
        self._shared = shared

    def run(self) -> str:
        """How it ended: "ran" or "did not run". Raises AssertionError with what is not right."""
        self._marker.unlink(missing_ok=True)
        shutil.copyfile(self._cluster.image("demo"), self._image)
        text = f'image = "{self._image}"\nmounts = ["{self._shared}:{self._shared}"]\n'
        edf = self._cluster.edf(text, image=None)
        step = ["-w", "n1", "-n2", f"--environment={edf}", "sh", "-c", _SCRIPT, str(self._marker)]
        with started(self._cluster, "srun", *step) as job:
            uid = pwd.getpwnam(ALICE).pw_uid
            cancel = self._cluster.cancel_all
            hit = faults.inflict(self.fault, uid, self._image, lambda: cancel(ALICE))
            self._wait(job)
        self._until_nothing_is_left(hit)
        said = self._marker.read_text().split() if self._marker.exists() else []
        assert set(said) <= {"inside"}, f"{self.fault}, {hit}: {said}"
        return "ran" if said else "did not run"

    def _wait(self, job: Job) -> None:
        """With a killed slurmstepd srun waits for the job's end, natively too."""
        try:
            job.wait(self.fault.lasts_s + 4)
        except AssertionError:
            self._cluster.cancel_all(ALICE)
            job.wait(30)
        self._cluster.cancel_all(ALICE)

    def _until_nothing_is_left(self, hit: str) -> None:
        uid = pwd.getpwnam(ALICE).pw_uid

        def over() -> bool:
            own = [p for p in processes() if p.lives and p.uid == uid and p.comm != "squeue"]
            return not own and not _left_of_alice(self._cluster)

        try:
            until("the end of all", over, 20 + _GONE_WITHIN_S)
        except AssertionError as error:
            raise AssertionError(f"{self.fault}, {hit}: {error}") from None


def _left_of_alice(cluster: Cluster) -> list[str]:
    """The bystander's container may be there."""
    uid = pwd.getpwnam(BOB).pw_uid
    bobs = {str(process.pid) for process in processes() if process.uid == uid}
    return [line for line in left(cluster) if not any(f" {pid}:" in line for pid in bobs)]


def _rounds(cluster: Cluster, demo: str, shared: Path, count: int) -> None:
    seed = os.environ.get("FAULTS_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"FAULTS_SEED={seed}")
    ended: Counter[str] = Counter()
    step = ["-w", "n2", f"--environment={demo}", "sh", "-c", "echo up; read line; echo alive $line"]
    with started(cluster, "srun", *step, user=BOB) as bystander:
        bystander.wait_for_lines(1)
        for number in range(count):
            a_round = _Round(cluster, shared, f"{seed}-{number}")
            try:
                ended[a_round.run()] += 1
            except AssertionError as error:
                raise AssertionError(f"FAULTS_SEED={seed}, round {number}: {error}") from None
        bystander.write("and well\n")
        bystander.close_input()
        done = bystander.wait()
    assert done.stdout == "up\nalive and well\n"
    assert sum(ended.values()) == count
    print(dict(ended))


def test_25_random_faults_run_nothing_outside_and_leave_nothing(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    _rounds(cluster, demo, shared, 25)


@pytest.mark.soak
def test_many_random_faults_run_nothing_outside_and_leave_nothing(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    _rounds(cluster, demo, shared, int(os.environ.get("FAULTS_RUNS") or 500))
