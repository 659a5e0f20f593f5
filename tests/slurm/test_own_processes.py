"""Containers with a PID namespace of their own: com.ce.unshare = "pid"."""

import pytest

from tests.slurm.cluster import ALICE, BOB, Cluster
from tests.slurm.job import job_id, started
from tests.slurm.polling import until
from tests.slurm.terminal import terminal

pytestmark = pytest.mark.usefixtures("tidy")
_LIST = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done"


@pytest.fixture
def apart(cluster: Cluster) -> str:
    edf = cluster.edf('[annotations]\n"com.ce.unshare" = "pid"\n', image="demo")
    return f"--environment={edf}"


def test_tasks_see_the_processes_of_their_container_only(cluster: Cluster, apart: str) -> None:
    with started(cluster, "srun", "-wn1", "sleep", "61", user=BOB):
        # a task that has joined, but not yet begun, still has the command line of its slurmstepd
        both = "touch /tmp/$SLURM_PROCID; until [ -e /tmp/0 -a -e /tmp/1 ]; do sleep 0.1; done"
        script = f"{both}; sleep 62 & {_LIST}; kill $!"
        done = cluster.run(["srun", "-wn1", "-n2", apart, "bash", "-c", script])
    assert done.returncode == 0, done.stderr
    shown = [line.strip() for line in done.stdout.splitlines()]
    assert "sleep 62" in shown
    assert "/dev/.ce-init" in shown
    assert not any("sleep 61" in line or "slurm" in line for line in shown)


def test_slurms_signals_reach_tasks_once_and_their_ends_reach_slurm(
    cluster: Cluster, apart: str
) -> None:
    script = "trap 'echo USR1' USR1; trap 'exit 5' TERM; echo up; while :; do sleep 0.1; done"
    with started(cluster, "srun", "-N2", apart, "bash", "-c", script) as job:
        job.wait_for_lines(2)
        number = job_id(cluster)
        assert cluster.run(["scancel", "-s", "USR1", number]).returncode == 0
        job.wait_for_lines(4)
        assert cluster.run(["scancel", "-s", "TERM", number]).returncode == 0
        done = job.wait()
    assert (done.returncode, sorted(done.stdout.split())) == (5, ["USR1", "USR1", "up", "up"])
    done = cluster.run(["srun", apart, "sh", "-c", "kill -SEGV $$"])
    assert done.returncode == 139
    assert done.stderr.count("Segmentation fault") == 1


def test_a_shell_has_the_terminal_and_starts_jobs_in_it(cluster: Cluster, apart: str) -> None:
    with terminal(cluster, "srun", "--pty", apart, "bash", "--norc") as screen:
        screen.type("PS1='ready''> '\r")
        screen.wait_for("ready> ")
        screen.type("echo now; sleep 300 || echo interrupted\r")
        screen.wait_for(r"\nnow")
        screen.type("\x03")
        screen.wait_for("ready> $")
        screen.type("sleep 0.2 & jobs; wait; tty\r")
        screen.wait_for(r"Running +sleep 0\.2")
        screen.wait_for(r"/dev/pts/\d+")
        screen.type("exit 7\r")
        assert screen.wait() == 7


def test_what_a_task_leaves_behind_ends_with_its_step(cluster: Cluster, apart: str) -> None:
    script = "(setsid sleep 4711 >/dev/null 2>&1 &) ; exit 3"
    assert cluster.run(["srun", apart, "sh", "-c", script]).returncode == 3

    def gone() -> bool | None:
        return cluster.run(["pgrep", "-f", "sleep 4711"]).returncode == 1 or None

    until("the process to end", gone)


def test_commands_that_are_added_see_the_processes_of_the_container(
    cluster: Cluster, apart: str
) -> None:
    with started(cluster, "srun", "-wn1", apart, "sh", "-c", "echo up; sleep 100") as job:
        job.wait_for_lines(1)
        job_number = job_id(cluster)
        added = ("srun", f"--jobid={job_number}", "--overlap", "-wn1")
        done = cluster.run([*added, "ce", "exec", job_number, "--", "sh", "-c", _LIST])
        assert "sleep 100" in done.stdout, done.stderr
        assert "slurm" not in done.stdout
        name = f"--container-name={job_number}.0"
        done = cluster.run([*added, name, "sh", "-c", _LIST])
        assert "sleep 100" in done.stdout, done.stderr
        assert "slurm" not in done.stdout
        cluster.cancel_all(ALICE)
