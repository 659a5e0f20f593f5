"""A new mount of an image has read ahead what a program has read from an earlier one."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, Cluster
from tests.slurm.job import started
from tests.slurm.leftovers import helpers
from tests.slurm.polling import until
from tests.slurm.test_starts_again import answers_of

pytestmark = pytest.mark.usefixtures("tidy")

# each is read in one piece
_FILES = "find /usr -type f -size +8k -size -64k | sort"
_NO_FILE = "/usr/no-such-file"
_LOOKED_UP = _NO_FILE.rpartition("/")[2].encode()
_SOME = 60  # enough for the rest to be read ahead


def _pid(comm: str) -> int:
    (helper,) = [process for process in helpers() if process.comm == comm]
    return helper.pid


def _served() -> int:
    """Return how many bytes the server of the only image has read."""
    lines = Path(f"/proc/{_pid('ce-image')}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def _reads_ahead() -> bool:
    """Return whether a thread of the guard has something of the image open."""
    links = Path(f"/proc/{_pid('ce-guard')}/task").glob("*/fd/*")
    return any("/usr" in os.readlink(link) for link in links)


def _recorded(records: Path) -> bool:
    return any(_LOOKED_UP in path.read_bytes() for path in records.glob("*"))


@contextmanager
def _stopped_server() -> Iterator[None]:
    server = _pid("ce-image")
    os.kill(server, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server, signal.SIGCONT)


def test_a_new_mount_has_what_was_read_from_an_earlier_one_before_it_is_asked_for(
    cluster: Cluster,
) -> None:
    records = answers_of(ALICE) / "reads"
    shutil.rmtree(records, ignore_errors=True)
    step = ["srun", "-wn1", f"--environment={cluster.edf()}", "sh", "-c"]
    first = f"set -- $({_FILES}); cat $@ | wc -c; test -e {_NO_FILE}; echo $@; read go"
    with started(cluster, *step, first) as job:
        files = job.wait_for_lines(2)[1].split()
        whole = _served()
        until("the record", lambda: _recorded(records))
        job.write("go\n")
        assert job.wait().returncode == 0
    assert len(files) > 2 * _SOME
    some, others = " ".join(files[:_SOME]), " ".join(files[_SOME:])
    again = f"cat {some} | wc -c; read go; test ! -e {_NO_FILE} && cat {others} | wc -c; read go"
    with started(cluster, *step, again) as job:
        job.wait_for_lines(1)
        until("the other files", lambda: _served() > whole * 0.9 and not _reads_ahead())
        with _stopped_server():
            job.write("go\n")
            job.wait_for_lines(2)
        job.write("go\n")
        assert job.wait().returncode == 0
