"""A new mount of an image has read ahead what a program has read from an earlier one."""

import shutil
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, Cluster
from tests.slurm.job import Job, started
from tests.slurm.leftovers import helpers
from tests.slurm.polling import until
from tests.slurm.test_starts_again import answers_of

pytestmark = pytest.mark.usefixtures("tidy")

# each is read in one piece
_FILES = "find /usr -type f -size +8k -size -64k | sort"
_UNIT = 8  # bytes of a record for each piece
_SOME = 60  # enough for the rest to be read ahead


def _served() -> int:
    """Return how many bytes the server of the only image has read."""
    (server,) = [process for process in helpers() if process.comm == "ce-image"]
    lines = Path(f"/proc/{server.pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def _read(job: Job) -> int:
    """Wait until the step has read its files, and return how many these are."""
    return int(job.wait_for_lines(2)[0])


def _script(files: str) -> list[str]:
    return ["sh", "-c", f"{files} | wc -l; {files} | xargs cat | wc -c; read go"]


def test_a_new_mount_reads_ahead_what_was_read_from_an_earlier_one(cluster: Cluster) -> None:
    records = answers_of(ALICE) / "reads"
    shutil.rmtree(records, ignore_errors=True)
    step = ["srun", "-wn1", f"--environment={cluster.edf()}"]
    with started(cluster, *step, *_script(_FILES)) as job:
        count = _read(job)
        whole = _served()
        until(
            "the record",
            lambda: [path for path in records.glob("*") if path.stat().st_size > count * _UNIT],
        )
        job.write("go\n")
        assert job.wait().returncode == 0
    assert count > 2 * _SOME
    with started(cluster, *step, *_script(f"{_FILES} | head -n {_SOME}")) as job:
        assert _read(job) == _SOME
        until("the other files", lambda: _served() > whole * 0.9)
        job.write("go\n")
        assert job.wait().returncode == 0
