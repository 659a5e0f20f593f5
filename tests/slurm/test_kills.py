"""Kills at any moment: nothing of the container stays, and the user learns the cause."""

import errno
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from tests.slurm import procfs
from tests.slurm.cluster import ALICE, Cluster, causes
from tests.slurm.error_block import ErrorBlock
from tests.slurm.job import Job, job_id, started
from tests.slurm.leftovers import assert_nothing_left, assert_soon_nothing_left, helpers, left
from tests.slurm.polling import until
from tests.slurm.procfs import Process
from tests.slurm.test_hooks_again import with_hook
from tests.slurm.test_starts_again import Node

# Enough for a start on a slow machine; the kills are spread over it.
_MOMENTS = 10
# How a task may end whose image is no longer served: by us, by signals, in Slurm's execve, or by an
# error of the loader or the shell.
_WITHOUT_IMAGE = {
    *(125, 126, 127, 137, 128 + signal.SIGBUS, 128 + signal.SIGSEGV),
    *(errno.ENOTCONN, errno.ECONNABORTED),
}


@pytest.fixture(autouse=True)
def _tidy(cluster: Cluster) -> Iterator[None]:
    assert_nothing_left(cluster)
    yield
    assert_nothing_left(cluster)


@contextmanager
def _running(cluster: Cluster, demo: str, script: str = "exec sleep 1000") -> Iterator[Job]:
    """Run a step of two tasks on one node, both in their container."""
    step = ["-w", "n1", "-n2", f"--environment={demo}", "sh", "-c", f"echo up; {script}"]
    with started(cluster, "srun", *step) as job:
        job.wait_for_lines(2)
        yield job


def _sleeping() -> list[Process]:
    return [p for p in procfs.processes() if p.lives and p.command == "sleep 4321"]


def _one(is_it: Callable[[Process], bool]) -> Process:
    def found() -> list[Process]:
        return [process for process in helpers() if is_it(process)]

    # a second task's guard, which ends when it finds the first one's, may still be there
    until("one such process", lambda: len(found()) == 1)
    return found()[0]


def _kill(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("comm", "cause"),
    [
        (".ce-init", "the container's init process ended"),
        ("ce-image", "(ce-image) was killed by signal 9"),
        ("ce-guard", "guards the container was killed"),
    ],
)
@pytest.mark.parametrize(
    "apart", ["", '"com.ce.unshare" = "pid"', '"com.ce.memory_limit" = "200M"']
)
def test_a_killed_helper_ends_the_step_and_is_named_once_for_all_tasks_and_nodes(
    cluster: Cluster, comm: str, cause: str, apart: str
) -> None:
    edf = cluster.edf(f"[annotations]\n{apart}\n", image="demo")
    step = ["-N2", "-n4", f"--environment={edf}", "sh", "-c", "echo up; exec sleep 4321"]
    with started(cluster, "srun", *step) as job:
        job.wait_for_lines(4)
        # A shell without an image would print errors of its own.
        until("tasks that only sleep", lambda: len(_sleeping()) == 4)
        victims = [process for process in helpers() if process.comm == comm]
        assert len(victims) == 2, victims
        for victim in victims:
            _kill(victim)
        assert_soon_nothing_left(cluster)
        done = job.wait()
    # A task may read its image, which is no longer served, before it is killed.
    assert done.returncode in {128 + signal.SIGKILL, 128 + signal.SIGBUS}, done.stderr
    ErrorBlock(done, "container-died", cause, exit_code=done.returncode)


@pytest.fixture
def fusectl(tmp_path: Path) -> Iterator[Path]:
    """Mount the file system in which an administrator aborts FUSE connections."""
    subprocess.run(["mount", "-t", "fusectl", "none", tmp_path], check=True)
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


def test_a_step_whose_fuse_file_system_is_aborted_says_so(
    cluster: Cluster, demo: str, fusectl: Path
) -> None:
    with _running(cluster, demo, "exec sleep 4321") as job:
        until("tasks that only sleep", lambda: len(_sleeping()) == 2)
        mounts = (procfs.PROC / str(_sleeping()[0].pid) / "mountinfo").read_text()
        guard = _one(lambda p: p.comm == "ce-guard")
        mounts += (procfs.PROC / str(guard.pid) / "mountinfo").read_text()
        numbers = {row.split()[2] for row in mounts.splitlines() if " fuse.ce-image " in row}
        (number,) = {number.partition(":")[2] for number in numbers}
        (fusectl / number / "abort").write_text("1")
        done = job.wait()
    assert done.returncode in _WITHOUT_IMAGE, done.stderr
    cause = "its FUSE file system was unmounted or aborted on the node"
    ErrorBlock(done, "container-died", cause, exit_code=done.returncode)


def test_a_killed_helper_on_one_node_ends_the_tasks_of_that_node(
    cluster: Cluster, demo: str
) -> None:
    step = ["-N2", "--kill-on-bad-exit=0", f"--environment={demo}", "sh", "-c"]
    script = "echo $SLURMD_NODENAME $$; read line; echo $SLURMD_NODENAME got $line"
    with started(cluster, "srun", *step, script) as job:
        tasks = dict(line.split() for line in job.wait_for_lines(2))
        namespace = procfs.Process(int(tasks["n2"]), 0, "S", 0, "", "").link("ns/mnt")
        _kill(_one(lambda p: p.comm == ".ce-init" and p.link("ns/mnt") == namespace))
        job.wait_for_error("ce: error: n2: .*init process ended")
        job.wait_for_error("n2: task 1: Killed")
        job.write("input\n")
        job.close_input()
        done = job.wait()
    assert "n1 got input" in done.stdout
    assert "n2 got" not in done.stdout


def test_what_the_tasks_had_started_ends_with_a_killed_container(
    cluster: Cluster, demo: str
) -> None:
    script = "setsid sleep 1234 & exec sleep 1000"
    with _running(cluster, demo, script) as job:
        _kill(_one(lambda process: process.comm == ".ce-init"))
        assert_soon_nothing_left(cluster)
        job.wait()


def test_what_a_task_leaves_running_ends_with_the_step(cluster: Cluster, demo: str) -> None:
    done = cluster.srun(f"--environment={demo}", "sh", "-c", "setsid sleep 1234 > /dev/null 2>&1 &")
    assert done.returncode == 0
    assert_soon_nothing_left(cluster)


def _stepd(job: str) -> int:
    """Return the pid of the slurmstepd of the job's first step."""
    title = f"slurmstepd: [{job}.0]"
    return until(
        title, lambda: next((p.pid for p in procfs.processes() if title in p.command), None)
    )


def test_a_killed_slurmstepd_takes_the_container_and_the_tasks_along(
    cluster: Cluster, demo: str
) -> None:
    with _running(cluster, demo) as job:
        number = job_id(cluster)
        os.kill(_stepd(number), signal.SIGKILL)
        assert_soon_nothing_left(cluster)
        # Natively, too, srun only learns of it when the job ends.
        cluster.run(["scancel", number])
        assert "Timed out waiting for job step to complete" in job.wait().stderr


def test_what_the_tasks_of_a_killed_slurmstepd_had_started_the_epilog_ends(
    cluster: Cluster, demo: str
) -> None:
    with _running(cluster, demo, "setsid sleep 1234 & exec sleep 1000") as job:
        number = job_id(cluster)
        os.kill(_stepd(number), signal.SIGKILL)
        until("helpers to end", lambda: not helpers(), 2)
        cluster.run(["scancel", number])
        job.wait()
    until("the epilog", lambda: "sleep 1234" not in [p.command for p in procfs.processes()], 10)


# ---- during a start ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """Processes of a program of this cluster: guards, or others."""

    program: str
    guards: bool = False

    @classmethod
    def of(cls, cluster: Cluster, name: str, *, guards: bool = False) -> Self:
        return cls(f"{cluster.prefix}/libexec/container-engine/{name} ", guards)

    def has(self, process: Process) -> bool:
        return self.program in process.command and process.is_first == self.guards


def _start_time(pid: int) -> int:
    """Return when a process started, in clock ticks after boot; 0 if it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def _first_seen(kind: Kind, job: Job) -> Process | None:
    """Return the first process of the step of this kind.

    Return None if the step's own command ran before that, or after 30 s.
    """
    begin = _start_time(job.process.pid)  # not its pid, as pids wrap around
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not job.out:
        for name in os.listdir("/proc"):
            if name.isdecimal() and _start_time(int(name)) >= begin:
                process = procfs.process(int(name))
                if process is not None and process.lives and kind.has(process):
                    return process
    return None


@contextmanager
def _starting(cluster: Cluster, kind: Kind, *step: str) -> Iterator[tuple[Job, Process]]:
    """Start a step, whose command prints something; yield it and its first process of this kind.

    Start another step if that process ended before it was seen, as on a busy machine.
    """
    for _ in range(5):
        with started(cluster, "srun", *step) as job:
            process = _first_seen(kind, job)
            if process is not None:
                yield job, process
                return
            cluster.cancel_all(ALICE)
            job.wait()
    raise AssertionError(f"not seen: {kind}")


@dataclass(frozen=True)
class Way:
    """An environment, and what starts its container on the node.

    That is the launcher, in Python, or ce-guard if an earlier start is recorded.
    """

    edf: str
    starts: Kind

    @property
    def is_repeated(self) -> bool:
        return self.starts.program.endswith("/ce-guard ")

    def lives_s(self, cluster: Cluster) -> float:
        """Return how long that program lives, in seconds."""
        step = [f"--environment={self.edf}", "sh", "-c", "echo up; cat"]
        with _starting(cluster, self.starts, *step) as (job, launcher):
            begin = time.monotonic()
            while _still(launcher, self.starts) is not None:
                time.sleep(0.001)
            took_s = time.monotonic() - begin
            job.wait_for_lines(1)
            job.close_input()
            assert job.wait().returncode == 0
            return took_s


# a runtime that takes so long that a start without Python can be hit
_RUNTIME = '#!/bin/sh\nsleep 0.2\nexec crun "$@"\n'


@pytest.fixture(scope="module", params=["launcher", "again", "again with hooks"])
def way(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Way]:
    if request.param == "launcher":
        # a deferred text, which only Python evaluates
        yield Way(cluster.edf("workdir = '${SLURM_JOB_ID:+/}'\n"), Kind.of(cluster, "launcher"))
        return
    runtime = cluster.write(_RUNTIME, mode=0o755)
    directory = Path(tempfile.mkdtemp(dir=cluster.scratch))
    directory.chmod(0o755)
    with Node(cluster, directory) as node:
        if request.param == "again":
            node.configure(f'runtime = "{runtime}"\n')
            yield Way(node.known(), Kind.of(cluster, "ce-guard"))
            return
        with with_hook(node, cluster.image("demo")) as site:
            site.configure(f'runtime = "{runtime}"\n')
            site.know()
            yield Way(site.edf, Kind.of(cluster, "ce-guard"))


@dataclass
class Aim:
    """The moment at which starts are killed, and whether kills came in time."""

    start_s: float
    hits: dict[str, list[bool]] = field(default_factory=lambda: {"launcher": [], "guard": []})

    def learn(self, victim: str, hit: bool) -> None:
        """Record a kill; after one that came too late, take a start to be shorter."""
        self.hits[victim].append(hit)
        if not hit:
            self.start_s *= 0.7


@pytest.fixture(scope="module")
def aim(cluster: Cluster, way: Way) -> Iterator[Aim]:
    """Yield the aim of this module's kills, most of which must have hit."""
    aim = Aim(min(way.lives_s(cluster) for _ in range(3)))
    yield aim
    for victim, hits in aim.hits.items():
        assert len(hits) < _MOMENTS or sum(hits) > len(hits) // 2, f"{victim}: {hits}"


@pytest.fixture
def delay(moment: int, victim: str, aim: Aim) -> float:
    """Return a random delay in this tenth of a start, in seconds; KILLS_SEED repeats it."""
    seed = os.environ.get("KILLS_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"KILLS_SEED={seed}", flush=True)
    return (moment + random.Random(f"{seed} {victim} {moment}").random()) / _MOMENTS * aim.start_s


@pytest.mark.parametrize("moment", range(_MOMENTS))
@pytest.mark.parametrize("victim", ["launcher", "guard"])
def test_a_kill_during_the_start_fails_the_step_and_the_command_never_runs_on_the_host(
    cluster: Cluster,
    way: Way,
    shared: Path,
    victim: str,
    delay: float,
    aim: Aim,
) -> None:
    guard = Kind.of(cluster, "ce-guard", guards=True)
    kind = way.starts if victim == "launcher" else guard
    marker = shared / "ran"
    step = [f"--environment={way.edf}", "sh", "-c", f"touch {marker}; echo up; exec sleep 1000"]
    with _starting(cluster, kind, *step) as (job, process):
        # the delay is what the test varies
        time.sleep(delay)
        killed = _kill_if_it_lives(process, kind)
        aim.learn(victim, killed)

        def is_over() -> bool:
            # a process that executes another program is not seen for a moment
            return job.process.poll() is not None and not left(cluster)

        within_s = 10 if killed else 30
        until("the end of all or a running task", lambda: job.out or is_over(), within_s)
        if job.out and (victim == "launcher" or way.is_repeated or not killed):
            # The victim had done its work, or ce-guard became the launcher and started another
            # guard: the step runs inside.
            cluster.cancel_all(ALICE)
            job.wait()
        else:
            assert_soon_nothing_left(cluster)
            done = job.wait()
            assert done.returncode in _WITHOUT_IMAGE
            assert len(causes(done)) == 1, done.stderr
    assert not marker.exists()


def _ready(here: list[Process], kind: Kind) -> Process | None:
    """Return the guard of a container whose first process exists."""
    ready = any(process.comm == ".ce-init" for process in here)
    return next((process for process in here if ready and kind.has(process)), None)


@pytest.mark.parametrize("delay_ms", [0, 2, 5, 10, 20])
def test_a_guard_killed_when_the_container_is_ready_is_named_once(
    cluster: Cluster, demo: str, delay_ms: int
) -> None:
    """Tasks that are about to join, join, execute or run then have no image any more."""
    kind = Kind.of(cluster, "ce-guard", guards=True)
    step = ["-n2", f"--environment={demo}", "sleep", "1000"]
    with started(cluster, "srun", *step) as job:
        guard = until("the container", lambda: _ready(helpers(), kind))
        # The delay is what the test varies.
        time.sleep(delay_ms / 1000)
        assert _kill_if_it_lives(guard, kind)
        done = job.wait()
    assert_soon_nothing_left(cluster)
    assert done.returncode in _WITHOUT_IMAGE
    assert len(causes(done)) == 1, done.stderr
    assert "guards the container" in causes(done)[0]


@contextmanager
def _started_with_a_stopped(cluster: Cluster, kind: Kind, *step: str) -> Iterator[Job]:
    """Run a step whose launcher or image server is stopped before the container is ready."""
    for _ in range(_MOMENTS):
        with _starting(cluster, kind, *step) as (job, process):
            os.kill(process.pid, signal.SIGSTOP)
            if not any(helper.comm == ".ce-init" for helper in helpers()):
                yield job
                return
            os.kill(process.pid, signal.SIGCONT)
            cluster.run(["scancel", job_id(cluster)])
            job.wait()
    raise AssertionError(f"never stopped in time: {kind}")


def test_an_image_server_that_stops_answering_fails_the_start_in_time(cluster: Cluster) -> None:
    edf = cluster.edf('[annotations]\n"com.ce.start_timeout_s" = "2"\n')
    step = ["-w", "n1", f"--environment={edf}", "sh", "-c", "echo ran; sleep 1000"]
    with _started_with_a_stopped(cluster, Kind.of(cluster, "ce-image"), *step) as job:
        done = job.wait()
    assert_soon_nothing_left(cluster)
    ErrorBlock(done, "start-timeout", "the container did not start within 2 s", node="n1")
    assert done.stdout == ""


def test_a_launcher_that_stops_is_ended_by_scancel(cluster: Cluster, way: Way) -> None:
    step = [f"--environment={way.edf}", "sh", "-c", "echo ran; sleep 1000"]
    with _started_with_a_stopped(cluster, way.starts, *step) as job:
        cluster.run(["scancel", job_id(cluster)])
        done = job.wait()
    assert_soon_nothing_left(cluster)
    assert done.returncode != 0
    assert done.stdout == ""


def _kill_if_it_lives(process: Process, kind: Kind) -> bool:
    """Kill a process that is still of this kind and its successors; return whether there were any.

    A launcher may have ended; one that lives may start another guard.
    """
    killed = False
    # the first process may already have been replaced
    found = [process, *filter(kind.has, helpers())]
    while living := [p for one in found if (p := _still(one, kind)) is not None]:
        for each in living:
            with suppress(ProcessLookupError):
                _kill(each)
        killed = True
        found = [*filter(kind.has, helpers())]
    return killed


def _still(process: Process, kind: Kind) -> Process | None:
    now = procfs.process(process.pid)
    return now if now is not None and now.lives and kind.has(now) else None


def test_srun_killed_during_the_start_leaves_nothing(cluster: Cluster, way: Way) -> None:
    step = [f"--environment={way.edf}", "sh", "-c", "echo up; exec sleep 1000"]
    with _starting(cluster, way.starts, *step) as (job, _launcher):
        job.process.kill()
        cluster.cancel_all(ALICE)
        assert job.wait().returncode == -9


def test_native_steps_are_not_touched_when_a_container_dies(cluster: Cluster, demo: str) -> None:
    with started(cluster, "srun", "-w", "n1", "sh", "-c", "echo up; cat") as native:
        native.wait_for_lines(1)
        with _running(cluster, demo) as job:
            _kill(_one(lambda process: process.comm == "ce-guard"))
            job.wait()
        native.write("still there\n")
        native.close_input()
        assert native.wait().stdout == "up\nstill there\n"


def test_the_controller_knows_of_no_step_afterwards(cluster: Cluster, demo: str) -> None:
    with _running(cluster, demo) as job:
        _kill(_one(lambda process: process.comm == "ce-guard"))
        job.wait()
    environment = cluster.environment() | {"SLURM_CONF": str(cluster.dir / "etc" / "slurm.conf")}

    def states() -> str:
        done = subprocess.run(
            ["sinfo", "-ho", "%T"], env=environment, capture_output=True, text=True, timeout=20
        )
        return done.stdout

    until("idle nodes", lambda: states().split() == ["idle"])
