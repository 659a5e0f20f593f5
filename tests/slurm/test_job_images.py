"""The images of a batch job are mounted and served once for all of its steps on the node."""

import re
from pathlib import Path

import pytest

from tests.slurm.cluster import BOB, Cluster
from tests.slurm.job import batch
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")

# Functions of the scripts: which processes serve the images of this job, and their guard.
_HEAD = """#!/bin/bash
in_job() {
    for pid in $(pgrep -u $UID -x $1); do
        grep -q "job_$SLURM_JOB_ID/step_batch" /proc/$pid/cgroup 2>/dev/null && echo $pid
    done
}
bytes() { awk '/^rchar/ { print $2 }' /proc/$(in_job ce-image)/io; }
await() { until [ -e $1 ]; do sleep 0.1; done; }
"""
_ALL = "find /usr -type f -exec cat {} + | wc -c"
_READ = f"sh -c '{_ALL}'"


class Script:
    """Runs batch scripts on the first node. In their text, $RUN starts a step in a container."""

    sbatch = ("sbatch", "-wn1", "-N1", "-n2")

    def __init__(self, cluster: Cluster, shared: Path) -> None:
        self._cluster, self._shared = cluster, shared
        edf = cluster.edf(f'mounts = ["{shared}"]\nworkdir = "{shared}"\n')
        self._head = f"{_HEAD}RUN='srun --overlap -n1 --environment={edf}'\ncd {shared}\n"

    def write(self, text: str) -> str:
        return str(self._cluster.write(self._head + text, mode=0o755))

    def __call__(self, text: str, *words: str) -> list[str]:
        """Return the lines of the script's output, errors included."""
        out = f"-o{self._shared}/lines"
        batch(self._cluster, *self.sbatch[1:], out, *words, self.write(text))
        return self.lines("lines")

    def lines(self, name: str, count: int = 0) -> list[str]:
        """Return the lines of a file in the shared directory, once there are so many."""
        path = self._shared / name

        def read() -> list[str] | None:
            found = path.read_text().splitlines() if path.exists() else []
            return found if len(found) >= count else None

        return until(f"{count} lines", read, 60) if count else read() or []


@pytest.fixture
def script(cluster: Cluster, shared: Path) -> Script:
    return Script(cluster, shared)


def test_a_later_step_reads_nothing_again_that_an_earlier_one_has_read(script: Script) -> None:
    first, second, before, between, after = script(
        f"$RUN true; a=$(bytes); $RUN {_READ}; b=$(bytes); $RUN {_READ}\necho $a; echo $b; bytes\n"
    )
    assert first == second
    assert int(between) - int(before) > 1_000_000
    # on a machine with other work the kernel may have given some pages away
    assert (int(after) - int(between)) * 2 < int(between) - int(before)


def test_a_step_goes_on_when_the_one_whose_mount_it_shares_has_ended(script: Script) -> None:
    lines = script(
        "$RUN sh -c 'touch up; until [ -e joined ]; do sleep 0.1; done' & one=$!\n"
        "await up\n"
        f"$RUN sh -c 'touch joined; until [ -e over ]; do sleep 0.1; done; {_ALL}' & two=$!\n"
        "wait $one; touch over; wait $two; echo $?\n"
        f"in_job ce-image | wc -l; $RUN {_READ}\n"
    )
    whole, code, servers, again = lines
    assert (code, servers) == ("0", "1")
    assert whole == again


def test_each_step_has_a_container_of_its_own(script: Script) -> None:
    lines = script(
        "$RUN sh -c 'echo mine > /new; cat /new'; $RUN ls /new; $RUN readlink /proc/self/ns/mnt\n"
    )
    assert lines[0] == "mine"
    assert "ls: cannot access '/new'" in lines[1]


@pytest.mark.parametrize(
    "fault",
    [
        "kill -KILL $(in_job ce-image)",
        "kill -STOP $(in_job ce-image)",
        "kill -KILL $(in_job ce-guard)",
        "kill -STOP $(in_job ce-guard)",
        # the kernel takes the server first when the job has no memory left
        "echo 1000 > /proc/$(in_job ce-image)/oom_score_adj;"
        " srun --overlap python3 -c 'bytes(1 << 30)' 2>/dev/null",
    ],
)
def test_a_step_mounts_its_image_itself_if_what_serves_the_job_does_not(
    script: Script, fault: str
) -> None:
    lines = script(f"$RUN echo one; {fault}; $RUN echo two; $RUN {_READ}\n", "--mem=512M")
    assert lines[:2] == ["one", "two"]
    assert len(lines) == 3
    assert int(lines[2]) > 1_000_000


def test_a_step_ends_with_a_reason_when_its_server_is_killed(script: Script) -> None:
    said = script(
        "$RUN sh -c 'touch up; sleep 1000' & step=$!\n"
        "await up; kill -KILL $(in_job ce-image); wait $step\n"
    )
    # srun prints the end of the task before or after the reason, which comes to it in another way
    reason = "the process that serves the image to the steps of the job (ce-image) ended"
    assert any(reason in line for line in said), said


def test_a_step_that_waits_for_a_stopped_server_can_be_ended(script: Script) -> None:
    lines = script(
        "$RUN sh -c 'touch up; until [ -e stopped ]; do sleep 0.1; done; touch reads;"
        " exec find / -xdev -type f -exec cat {} +' >/dev/null 2>&1 & step=$!\n"
        "await up; kill -STOP $(in_job ce-image); touch stopped; await reads\n"
        "scancel $SLURM_JOB_ID.0; wait $step; echo ended; $RUN echo next\n"
    )
    assert lines[-2:] == ["ended", "next"]


def test_two_jobs_on_a_node_share_nothing(cluster: Cluster, script: Script, shared: Path) -> None:
    text = "$RUN true; in_job ce-image; touch {0}; await {1}; in_job ce-image\n"
    cluster.run([*script.sbatch, f"-o{shared}/other", script.write(text.format("b", "a"))])
    own = script(text.format("a", "b"))
    other = script.lines("other", 2)
    assert [own[0], other[0]] == [own[1], other[1]]
    assert own[0] != other[0]


# Sends a request as a guard does, with the user namespace of this process.
_ASKS = """
import array, os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect("\\0" + sys.argv[1])
ns = array.array("i", [os.open("/proc/self/ns/user", os.O_RDONLY)])
try:
    s.sendmsg([b"\\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, ns)])
    print("answer", len(s.recvmsg(100, 1000)[1]))
except OSError:
    print("answer 0")
"""


def test_neither_another_user_nor_a_process_in_a_container_gets_anything(
    cluster: Cluster, script: Script, shared: Path
) -> None:
    asks = shared / "asks.py"
    asks.write_text(_ASKS)
    text = (
        "name=ce-images/$UID/$SLURM_JOB_ID.$SLURMD_NODENAME; echo $name\n"
        f"python3 {asks} $name; $RUN python3 {asks} $name; await asked\n"
    )
    cluster.run([*script.sbatch, f"-o{shared}/out", script.write(text)])
    name, *answers = script.lines("out", 3)
    refused = cluster.run(["python3", str(asks), name], user=BOB)
    (shared / "asked").touch()
    assert [*answers, refused.stdout.strip()] == ["answer 1", "answer 0", "answer 0"]


def test_kept_containers_of_such_a_job_live_on(script: Script) -> None:
    lines = script(
        "$RUN --container-name=a sh -c 'echo kept > /new'\n"
        "kill -KILL $(in_job ce-guard)\n"
        "$RUN --container-name=a cat /new\n"
    )
    assert lines == ["kept"]


def test_a_job_that_names_no_environment_has_no_such_process(
    cluster: Cluster, shared: Path
) -> None:
    job = cluster.write(f"{_HEAD}in_job ce-guard | wc -l\n", mode=0o755)
    batch(cluster, "-wn1", f"-o{shared}/out", str(job))
    assert (shared / "out").read_text() == "0\n"


def test_a_cancelled_job_leaves_nothing(script: Script) -> None:
    script("$RUN true; scancel $SLURM_JOB_ID; sleep 1000\n")


def test_an_image_that_is_replaced_between_two_steps_is_the_new_one(
    cluster: Cluster, script: Script, shared: Path
) -> None:
    image = shared / "image.sqsh"
    edf = cluster.write(f'image = "{image}"\n', "replaced.toml")
    demo, busybox = cluster.image("demo"), cluster.image("busybox")
    lines = script(
        f"cp {demo} {image}; srun -n1 --environment={edf} sh -c 'ls /usr/bin | wc -l'\n"
        f"cp {busybox} {image}.new; mv {image}.new {image}\n"
        f"srun -n1 --environment={edf} sh -c 'ls /usr/bin | wc -l'\n"
    )
    counts = [line for line in lines if re.fullmatch(r"\d+", line)]
    assert len(counts) == len(set(counts)) == 2
