"""Input, output and terminals of tasks in containers are Slurm's, unchanged."""

import shlex
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, Cluster
from tests.slurm.job import started
from tests.slurm.polling import until
from tests.slurm.terminal import Terminal, terminal

pytestmark = pytest.mark.usefixtures("tidy")


def test_input_reaches_every_task(cluster: Cluster, demo: str) -> None:
    text = "first\nsecond ü\n"
    done = cluster.srun("-N2", "-n4", f"--environment={demo}", "cat", input=text)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["first"] * 4 + ["second ü"] * 4


def test_input_reaches_the_one_task_that_is_named(cluster: Cluster, demo: str) -> None:
    script = 'echo "$SLURM_PROCID: $(cat)"'
    done = cluster.srun(
        "-N2", "-n4", "--input=2", f"--environment={demo}", "sh", "-c", script, input="for two\n"
    )
    assert sorted(done.stdout.splitlines()) == ["0: ", "1: ", "2: for two", "3: "]


def test_without_input_tasks_read_nothing(cluster: Cluster, demo: str) -> None:
    done = cluster.srun("--input=none", f"--environment={demo}", "wc", "-c", input="lost")
    assert done.stdout.strip() == "0"


def test_a_mebibyte_passes_through_unchanged(cluster: Cluster, demo: str) -> None:
    text = "".join(f"{number:07d}\n" for number in range(131072))
    done = cluster.srun(f"--environment={demo}", "cat", input=text)
    assert done.stdout == text


def test_input_that_comes_later_arrives_while_the_step_runs(cluster: Cluster, demo: str) -> None:
    script = 'while read line; do echo "got $line"; done'
    with started(cluster, "srun", f"--environment={demo}", "sh", "-c", script) as job:
        for number in range(1, 4):
            job.write(f"{number}\n")
            assert job.wait_for_lines(number)[-1] == f"got {number}"
        job.close_input()
        assert job.wait().returncode == 0


def test_output_and_errors_stay_apart(cluster: Cluster, demo: str) -> None:
    script = "echo to stdout; echo to stderr >&2"
    done = cluster.srun("-N2", "-n2", f"--environment={demo}", "sh", "-c", script)
    assert (done.stdout, done.stderr) == ("to stdout\n" * 2, "to stderr\n" * 2)


def test_lines_are_labelled_with_their_tasks(cluster: Cluster, demo: str) -> None:
    step = ["-N2", "-n4", "--label", "sh", "-c", "echo $SLURM_PROCID"]
    done = cluster.srun(f"--environment={demo}", *step)
    assert sorted(done.stdout.splitlines()) == [f"{rank}: {rank}" for rank in range(4)]
    assert sorted(done.stdout) == sorted(cluster.srun(*step).stdout)


def test_each_task_can_have_its_own_output_file(cluster: Cluster, demo: str, shared: Path) -> None:
    """Slurm opens the files on the host: the container need not see them."""
    done = cluster.srun(
        *("-N2", "-n4", f"--output={shared}/file-%t", f"--error={shared}/error-%t"),
        *(f"--environment={demo}", "sh", "-c", "echo $SLURM_PROCID; echo e$SLURM_PROCID >&2"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for rank in range(4):
        assert (shared / f"file-{rank}").read_text() == f"{rank}\n"
        assert (shared / f"error-{rank}").read_text() == f"e{rank}\n"


def test_the_engines_errors_go_to_the_tasks_error_file(cluster: Cluster, shared: Path) -> None:
    edf = cluster.edf('workdir = "/no/such/dir"\n')
    done = cluster.srun(f"--error={shared}/errors", f"--environment={edf}", "true")
    assert done.returncode == 125
    assert "'/no/such/dir'" in (shared / "errors").read_text()


# ---- terminals -----------------------------------------------------------------------------------


def _prompt(screen: Terminal) -> None:
    screen.type("PS1='ready''> '\r")
    screen.wait_for("ready> ")


def test_a_shell_in_a_container_has_a_terminal(cluster: Cluster, demo: str) -> None:
    with terminal(cluster, "srun", "--pty", f"--environment={demo}", "bash", "--norc") as screen:
        _prompt(screen)
        screen.type(". /etc/os-release; tty; echo $ID-$(id -un)-$((6 * 7))\r")
        screen.wait_for(r"/dev/pts/\d+")
        screen.wait_for(f"ce-demo-{ALICE}-42")
        screen.type("exit 7\r")
        assert screen.wait() == 7


def test_the_terminal_has_the_callers_size_and_follows_it(cluster: Cluster, demo: str) -> None:
    with terminal(
        cluster, "srun", "--pty", f"--environment={demo}", "bash", "--norc", rows=31, columns=97
    ) as screen:
        _prompt(screen)
        screen.type("stty size\r")
        screen.wait_for("31 97")
        screen.type("trap 'echo resized to $(stty size)' WINCH\r")
        screen.wait_for("ready> $")
        screen.resize(43, 111)
        until("the new size", lambda: _size(screen) == "43 111" or None)
        screen.type(
            "sh -c 'trap \"stty size; exit\" WINCH; echo wai''ts; while :; do sleep 0.1; done'\r"
        )
        screen.wait_for("waits\r")
        screen.resize(21, 87)
        screen.wait_for("21 87")
        screen.type("exit\r")
        assert screen.wait() == 0


def _size(screen: Terminal) -> str:
    screen.type("echo size=$(stty size).\r")
    return screen.wait_for(r"size=\d+ \d+\.").removeprefix("size=").removesuffix(".")


def _sleep(screen: Terminal) -> None:
    """Run a command in the foreground and wait for its output; earlier keys go to the shell."""
    screen.type("sh -c 'echo sleeps; exec sleep 1000'\r")
    screen.wait_for(r"\nsleeps\r")


def test_ctrl_c_at_the_terminal_interrupts_the_command_and_not_the_shell(
    cluster: Cluster, demo: str
) -> None:
    with terminal(cluster, "srun", "--pty", f"--environment={demo}", "bash", "--norc") as screen:
        _prompt(screen)
        _sleep(screen)
        screen.type("\x03")
        screen.wait_for(r"\^C")
        screen.type("echo code $?\r")
        screen.wait_for("code 130")
        screen.type("\x04")
        screen.wait_for("exit")
        screen.wait()


def test_job_control_works_in_a_shell(cluster: Cluster, demo: str) -> None:
    with terminal(cluster, "srun", "--pty", f"--environment={demo}", "bash", "--norc") as screen:
        _prompt(screen)
        _sleep(screen)
        screen.type("\x1a")
        screen.wait_for("Stopped")
        screen.type("kill %1; fg; echo still here\r")
        screen.wait_for(r"still here\r")
        screen.type("exit 0\r")
        assert screen.wait() == 0


def test_a_terminal_of_the_container_is_not_somebody_elses(cluster: Cluster, demo: str) -> None:
    """The task's terminal is the same device inside and outside: programs find it by its name."""
    script = shlex.join(["python3", "-c", "import os; print('name', os.ttyname(0))"])
    with terminal(cluster, "srun", "--pty", f"--environment={demo}", "bash", "--norc") as screen:
        _prompt(screen)
        screen.type(f"{script}\r")
        screen.wait_for(r"name /dev/pts/\d+")
        screen.type("exit 0\r")
        assert screen.wait() == 0


def test_a_step_without_input_reads_none(cluster: Cluster, demo: str) -> None:
    done = cluster.srun("-i", "none", f"--environment={demo}", "cat", input="not for the task\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
