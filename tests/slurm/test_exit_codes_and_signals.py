"""Ends of steps in a container, compared with those of the same steps without one."""

import re
import signal
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.slurm.cluster import Cluster, Completed
from tests.slurm.job import Job, job_id, started
from tests.slurm.leftovers import assert_nothing_left
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")

T = TypeVar("T")
# Traps Slurm's signals and prints them; prints `up` when the traps are set.
_WAITS = "echo up; while :; do sleep 0.1; done"
_TRAPS = "trap 'echo USR1' USR1; trap 'echo INT' INT; trap 'echo TERM; exit 5' TERM; " + _WAITS


# Whether these lines appear depends on which node ends first, and how soon. Slurm 24.11 prints the
# last one now and then, also natively.
_BY_CHANCE = re.compile(
    r"(slurmstepd-n\d:|\[[\d:.T-]+\]) error: \*\*\* STEP .*CANCELLED|"
    r"srun: Job step aborted(: Waiting up to|$)|"
    r"srun: error: IO: Hey, you told me node \d+ was down!$"
)
_TRIES = 4
_TASKS = re.compile(r"(srun: error: n\d): tasks? ([\d,-]+): (.*)")


def _one_line_per_task(line: str) -> list[str]:
    """Split a line in which Slurm reports several tasks, as it does when they end together."""
    match = _TASKS.fullmatch(line)
    if not match:
        return [line]
    ranges = [part.partition("-") for part in match[2].split(",")]
    ranks = [rank for a, _, b in ranges for rank in range(int(a), int(b or a) + 1)]
    return [f"{match[1]}: task {rank}: {match[3]}" for rank in ranks]


def _told(text: str) -> list[str]:
    """Return Slurm's lines sorted, without what differs from one run to the next."""
    text = re.sub(r"StepId=[\d.]+", "StepId=N", text)
    lines = [line for line in text.splitlines() if not _BY_CHANCE.match(line)]
    return sorted(part for line in lines for part in _one_line_per_task(line))


def _ending(done: Completed) -> tuple[int, list[str], list[str]]:
    return done.returncode, _told(done.stdout), _told(done.stderr)


def _same_as_natively(cluster: Cluster, demo: str, *step: str) -> Completed:
    if "-N2" not in step:
        step = ("--nodelist=n1", *step)  # otherwise a busy node would not be chosen
    inside = cluster.srun(f"--environment={demo}", *step)
    assert _ending(inside) == _ending(cluster.srun(*step))
    return inside


@pytest.mark.parametrize("code", [0, 1, 3, 125, 126, 127, 137, 255])
def test_the_exit_code_of_a_task_is_sruns(cluster: Cluster, demo: str, code: int) -> None:
    done = _same_as_natively(cluster, demo, "sh", "-c", f"exit {code}")
    assert done.returncode == code


def test_the_highest_exit_code_of_all_tasks_is_sruns(cluster: Cluster, demo: str) -> None:
    step = ["-N2", "-n4", "sh", "-c", "exit $SLURM_PROCID"]
    assert _same_as_natively(cluster, demo, *step).returncode == 3


@pytest.mark.parametrize("name", ["KILL", "SEGV", "TERM", "USR2"])
def test_a_task_that_dies_of_a_signal_is_reported_as_such(
    cluster: Cluster, demo: str, name: str
) -> None:
    done = _same_as_natively(cluster, demo, "sh", "-c", f"kill -{name} $$")
    assert done.returncode != 0


def test_one_task_of_four_that_dies_is_reported_as_such(cluster: Cluster, demo: str) -> None:
    step = ["-N2", "-n4", "sh", "-c", "[ $SLURM_PROCID != 2 ] || kill -KILL $$"]
    assert _same_as_natively(cluster, demo, *step).returncode == 137


def test_kill_on_bad_exit_ends_the_other_tasks(cluster: Cluster, demo: str) -> None:
    script = "[ $SLURM_PROCID != 3 ] || exit 4; exec sleep 100"
    step = ["-N2", "-n4", "--kill-on-bad-exit", "sh", "-c", script]
    _code, _out, err = _in_both(
        cluster, demo, lambda options: _ending(cluster.srun(*options, *step))
    )
    assert "srun: error: n2: task 3: Exited with exit code 4" in err


def test_without_kill_on_bad_exit_the_other_tasks_go_on(cluster: Cluster, demo: str) -> None:
    script = "[ $SLURM_PROCID != 0 ] || exit 4; sleep 0.5; echo done"
    done = _same_as_natively(cluster, demo, "-n2", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (4, "done\n")


def _interrupted(
    cluster: Cluster, options: list[str], script: str, act: Callable[[Job], None]
) -> tuple[int, list[str], list[str]]:
    """Return how a two-node step ends after `act`, which is called when both tasks are up."""
    with started(cluster, "srun", "-N2", *options, "sh", "-c", script) as job:
        job.wait_for_lines(2)
        act(job)
        return _ending(job.wait())


def _both_interrupted(
    cluster: Cluster, demo: str, script: str, act: Callable[[Job], None], said: str = "up"
) -> tuple[int, list[str], list[str]]:
    """Return an ending that the step has both in a container and natively.

    Some task must have printed `said`.
    """
    return _in_both(
        cluster,
        demo,
        lambda options: _interrupted(cluster, options, script, act),
        lambda ending: said in ending[1],
    )


def _in_both(
    cluster: Cluster,
    demo: str,
    end: Callable[[list[str]], T],
    counts: Callable[[T], bool] = lambda _ending: True,
) -> T:
    """Return an ending, accepted by `counts`, that a step has both in a container and without.

    Slurm's own races end a step in more than one way: it sends SIGKILL a moment after SIGINT, and
    how far a shell gets in between depends on the scheduler. So both are tried again if they
    differ.
    """
    inside: list[T] = []
    native: list[T] = []
    for _ in range(_TRIES):
        inside.append(end([f"--environment={demo}"]))
        assert_nothing_left(cluster)
        native.append(end([]))
        both = [ending for ending in inside if ending in native and counts(ending)]
        if both:
            return both[0]
    raise AssertionError(f"in a container {inside}, natively {native}")


def test_one_ctrl_c_only_tells_how_the_tasks_are(cluster: Cluster, demo: str) -> None:
    def interrupt(job: Job) -> None:
        job.signal(signal.SIGINT)
        job.wait_for_error("one more within 1 sec to abort")
        cluster.run(["scancel", "-s", "TERM", job_id(cluster)])

    code, out, _err = _both_interrupted(cluster, demo, _TRAPS, interrupt)
    assert (code, out) == (5, ["TERM", "TERM", "up", "up"])


def test_two_ctrl_c_interrupt_the_tasks_and_end_the_step(cluster: Cluster, demo: str) -> None:
    def interrupt(job: Job) -> None:
        # On a busy machine more than one second may pass, and Slurm counts again.
        for count in range(1, 10):
            job.signal(signal.SIGINT)
            job.wait_for_error(f"(?s)(one more within 1 sec.*){{{count}}}|forcing job termination")
            if "forcing job termination" in job.err:
                return

    # Whether the signal reaches a task before Slurm kills the step is a matter of milliseconds.
    code, _out, err = _both_interrupted(cluster, demo, _WAITS, interrupt)
    assert code != 0
    assert "srun: forcing job termination" in err


def test_sigterm_to_srun_ends_the_step(cluster: Cluster, demo: str) -> None:
    code, _out, err = _both_interrupted(
        cluster, demo, "echo up; exec sleep 100", lambda job: job.signal(signal.SIGTERM)
    )
    assert code != 0
    assert "srun: forcing job termination" in err


def test_scancel_ends_the_step(cluster: Cluster, demo: str) -> None:
    code, out, _err = _both_interrupted(
        cluster, demo, _TRAPS, lambda _job: _scancel(cluster, job_id(cluster))
    )
    assert code != 0
    assert out.count("TERM") == 2


def test_scancel_ends_tasks_that_ignore_sigterm(cluster: Cluster, demo: str) -> None:
    script = "trap '' TERM; echo up; exec sleep 100"
    _both_interrupted(cluster, demo, script, lambda _job: _scancel(cluster, job_id(cluster)))


def test_scancel_with_a_signal_reaches_the_tasks_and_ends_nothing(
    cluster: Cluster, demo: str
) -> None:
    def signal_twice(job: Job) -> None:
        _scancel(cluster, "-s", "USR1", job_id(cluster))
        job.wait_for_lines(4)
        _scancel(cluster, "-s", "TERM", job_id(cluster))

    code, out, _err = _both_interrupted(cluster, demo, _TRAPS, signal_twice)
    assert (code, out) == (5, ["TERM", "TERM", "USR1", "USR1", "up", "up"])


def test_scancel_while_the_container_starts_ends_the_step_as_natively(
    cluster: Cluster, demo: str
) -> None:
    """Natively srun may wait in vain for the end of the step, by chance: inside it need not."""

    def end(options: list[str]) -> tuple[int, bool]:
        with started(cluster, "srun", "-N2", *options, "sleep", "100") as job:
            _scancel(cluster, job_id(cluster))
            done = job.wait()
            return done.returncode, "Timed out" in done.stderr

    inside, native = [], []
    for _ in range(_TRIES):
        inside.append(end([f"--environment={demo}"]))
        assert_nothing_left(cluster)
        native.append(end([]))
        if any(ours in {theirs, (theirs[0], False)} for ours in inside for theirs in native):
            assert inside[-1][0] != 0
            return
    raise AssertionError(f"in a container {inside}, natively {native}")


def _scancel(cluster: Cluster, *args: str) -> None:
    done = cluster.run(["scancel", *args])
    assert done.returncode == 0, done.stderr


def _shorten(cluster: Cluster, count: int) -> None:
    """Let so many jobs reach their time limit in 5 s; `--time` takes minutes.

    Slurm refuses an end that has passed when the request arrives.
    """

    def ask() -> list[str] | None:
        jobs = cluster.run(["squeue", "-ho", "%A", "-t", "running", "--me"]).stdout.split()
        return jobs if len(jobs) == count else None

    for job in until(f"{count} running jobs", ask):
        done = cluster.run(["scontrol", "update", f"jobid={job}", "endtime=now+5"])
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_time_limit_ends_the_step(cluster: Cluster, demo: str) -> None:
    """Slurm checks the limits every half minute: the two steps wait together."""
    step = ["--time=1", "-N2", "sh", "-c", _TRAPS]
    with (
        started(cluster, "srun", f"--environment={demo}", *step) as inside,
        started(cluster, "srun", *step) as native,
    ):
        inside.wait_for_lines(2)
        native.wait_for_lines(2)
        _shorten(cluster, 2)
        ended = _ending(inside.wait(150))
        natively = _ending(native.wait(30))
    assert ended[:2] == natively[:2]
    assert ended[1].count("TERM") == 2
    # A shell prints "Terminated" for the `sleep` that it waits for, if it waits for one just then.
    assert set(ended[2]) - {"Terminated"} == set(natively[2]) - {"Terminated"}
