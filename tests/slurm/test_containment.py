"""All processes that a user starts through the engine are in Slurm's step and end with it."""

import itertools
import os
import pwd
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.slurm import procfs
from tests.slurm.cluster import ALICE, Cluster, sandbox
from tests.slurm.faults import freeze
from tests.slurm.job import Job, job_id, started
from tests.slurm.leftovers import assert_nothing_left, helpers
from tests.slurm.polling import until
from tests.slurm.procfs import Process
from tests.slurm.test_hooks_again import Site, with_hook
from tests.slurm.test_starts_again import Node

# CI plays a few rounds; a release needs CE_CONTAINMENT_ROUNDS=200, which the kinds of starts share.
_ROUNDS = (int(os.environ.get("CE_CONTAINMENT_ROUNDS", "12")) + 2) // 3
_KEPT_ROUNDS = int(os.environ.get("CE_CONTAINMENT_ROUNDS", "6"))
_KEPT = Path("/tmp")
# Left behind by the start-up line of a malicious EDF: no parent, session or environment.
_DAEMON = "sleep 77771"
_STARTUP = f'startup = ["(setsid env -i {_DAEMON} </dev/null >/dev/null 2>&1 &)"]\n'
_FUSE = Path(__file__).parent / "mute_fuse.py"
_TRACING = Path(__file__).parent / "tracing.c"


@pytest.fixture(autouse=True)
def _tidy(cluster: Cluster) -> Iterator[None]:
    assert_nothing_left(cluster)
    yield
    assert_nothing_left(cluster)


@pytest.fixture
def daemonic(cluster: Cluster) -> str:
    return cluster.edf(_STARTUP)


@contextmanager
def _running(cluster: Cluster, edf: str, *options: str) -> Iterator[Job]:
    step = ["-w", "n1", "-n2", *options, f"--environment={edf}", "sh", "-c"]
    with started(cluster, "srun", *step, "echo up; exec sleep 1000") as job:
        job.wait_for_lines(2)
        yield job


def _alices() -> list[Process]:
    return procfs.living(pwd.getpwnam(ALICE).pw_uid)


def _of_step() -> list[Process]:
    """Return the user's processes except slurmstepd, srun, salloc and salloc's script."""
    others = ("srun", "salloc", "sh -ec", "slurmstepd")
    return [p for p in _alices() if not p.command.startswith(others)]


def _idle(cluster: Cluster) -> bool:
    states = cluster.run(["sinfo", "-h", "-N", "-o", "%T"]).stdout.split()
    return set(states) == {"idle"}


def _outside(job: str) -> list[Process]:
    """Return processes that at least one of Slurm's controllers has in no step of the job."""
    found = []
    for process in _of_step():
        with suppress(FileNotFoundError, ProcessLookupError):
            groups = [process.cgroups()[name] for name in ("freezer", "memory", "devices")]
            found += [process] * any(f"/job_{job}/step_" not in group for group in groups)
    return found


def _assert_in_steps_of(job: str) -> None:
    # the kernel takes a process that ends out of its cgroups a moment before it is gone
    until("processes in their steps", lambda: not _outside(job), 2)


def test_every_process_of_a_session_is_in_its_step(cluster: Cluster, daemonic: str) -> None:
    with _running(cluster, daemonic) as job:
        number = job_id(cluster)
        found = _of_step()
        names = {process.comm for process in found}
        assert {"ce-guard", "ce-image", ".ce-init", "sleep"} <= names, names
        assert _DAEMON in {process.command for process in found}
        _assert_in_steps_of(number)
        cluster.run(["scancel", number])
        job.wait()


def test_a_daemon_of_a_start_up_line_ends_with_its_step(cluster: Cluster, daemonic: str) -> None:
    done = cluster.srun("-N2", f"--environment={daemonic}", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert _DAEMON not in [process.command for process in _alices()]


def test_the_helpers_have_the_users_own_limits(cluster: Cluster, demo: str) -> None:
    script = f"ulimit -c 0; ulimit -n 1017; exec srun -w n1 --environment={demo} sleep 1000"
    with started(cluster, "sh", "-c", script) as job:
        guards = until("a guard", lambda: [p for p in helpers() if p.comm == "ce-image"])
        limits = (procfs.PROC / str(guards[0].pid) / "limits").read_text()
        rows = {line[:26].strip(): line[26:].split() for line in limits.splitlines()}
        assert rows["Max open files"][0] == "1017"
        assert rows["Max core file size"][0] == "0"
        cluster.run(["scancel", job_id(cluster)])
        job.wait()


_HOG = "python3 -c 'b = bytearray(600 << 20)'"


@pytest.mark.parametrize("hog", [_HOG, f"({_HOG} & wait)"], ids=["task", "daemon"])
def test_no_process_of_a_step_has_more_memory_than_its_job(
    cluster: Cluster, demo: str, hog: str
) -> None:
    step = ("-w", "n1", "--mem=200M", f"--environment={demo}", "sh", "-c", hog)
    done = cluster.srun(*step)
    assert done.returncode != 0
    # the words of Slurm 22.05 and 24.11, and those of 26.05
    told = ("cgroup out-of-memory handler", "oom_kill event")
    assert any(words in done.stderr for words in told), done.stderr


def test_the_helpers_are_not_bound_to_the_cores_of_the_task_that_started_them(
    cluster: Cluster, demo: str
) -> None:
    with _running(cluster, demo, "--cpu-bind=map_cpu:0") as job:
        mine = os.sched_getaffinity(0)
        guards = [process for process in helpers() if process.comm == "ce-image"]
        assert [os.sched_getaffinity(process.pid) for process in guards] == [mine]
        cluster.run(["scancel", job_id(cluster)])
        job.wait()


@pytest.mark.parametrize("apart", ["", '"com.ce.unshare" = "pid"'])
def test_a_step_that_is_cancelled_says_nothing_of_a_container(cluster: Cluster, apart: str) -> None:
    edf = str(cluster.edf(f"[annotations]\n{apart}\n", image="demo"))
    for _ in range(3):
        with _running(cluster, edf) as job:
            cluster.run(["scancel", "-s", "KILL", job_id(cluster)])
            assert "ce: " not in job.wait().stderr
        assert_nothing_left(cluster)


def test_a_user_who_stops_his_image_server_drains_no_node(cluster: Cluster, demo: str) -> None:
    script = "echo up; while :; do find / -xdev >/dev/null 2>&1; sleep 0.02; done"
    step = ["-w", "n1", "-n4", f"--environment={demo}", "sh", "-c", script]
    with started(cluster, "srun", *step) as job:
        job.wait_for_lines(4)
        servers = [process for process in helpers() if process.comm == "ce-image"]
        assert servers
        for server in servers:
            os.kill(server.pid, signal.SIGSTOP)
        time.sleep(0.5)  # the fault itself: requests that get no answer
        cluster.run(["scancel", job_id(cluster)])
        job.wait()
    until("idle nodes", lambda: _idle(cluster), 30)
    assert not _of_step()


# ---- tracers -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tracing(cluster: Cluster) -> Path:
    """Return the program that holds processes by ptrace (see tracing.c)."""
    program = cluster.scratch / "tracing"
    subprocess.run(["gcc", "-static", "-o", program, _TRACING], check=True)
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("end", ["scancel", "the last task"])
def test_a_user_who_traces_the_engines_processes_drains_no_node(
    cluster: Cluster, demo: str, tracing: Path, end: str
) -> None:
    """Such a tracer, outside of the step, is not killed with it, and takes no note of ends."""
    step = ["-w", "n1", f"--environment={demo}", "sh", "-c", "echo up; exec cat"]
    with started(cluster, "srun", *step) as job:
        job.wait_for_lines(1)
        held = [str(process.pid) for process in helpers()]
        with cluster.popen([str(tracing), "interrupt", *held]) as tracer:
            assert tracer.line() == f"{len(held)}\n"
            if end == "scancel":
                cluster.run(["scancel", job_id(cluster)])
            else:
                job.close_input()
            job.wait()
            until("idle nodes", lambda: _idle(cluster), 30)
            tracer.kill()
    _assert_soon_idle_and_nothing_left(cluster)


@pytest.mark.parametrize("way", ["interrupt", "exit"])
def test_a_task_that_traces_all_it_can_ends_with_its_step(
    cluster: Cluster, tracing: Path, way: str
) -> None:
    edf = cluster.edf(f'mounts = ["{tracing}"]\n{_STARTUP}')
    script = f"if [ $SLURM_PROCID = 0 ]; then exec {tracing} {way} all; fi; exec sleep 1000"
    step = ["-w", "n1", "-n2", f"--environment={edf}", "sh", "-c", script]
    with started(cluster, "srun", *step) as job:
        # at least the first process and the daemon; the other task may not be there yet
        assert int(job.wait_for_lines(1)[0]) >= 2
        cluster.run(["scancel", job_id(cluster)])
        job.wait()
    _assert_soon_idle_and_nothing_left(cluster)


# ---- whatever is stopped or killed ---------------------------------------------------------------


def _kill(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)


def _stop(process: Process) -> None:
    os.kill(process.pid, signal.SIGSTOP)


def _freeze(process: Process) -> None:
    freeze(process, 1)


def _play(number: int, what: str) -> None:
    """Stop, kill or starve a process of the session; the rounds play all of them in turn."""
    chance = random.Random(f"containment-{number}")
    victims = sorted(_of_step(), key=lambda process: process.pid)
    faults = list(itertools.product(victims, (_stop, _kill)))
    faults.append((victims[0], _freeze))
    random.Random(len(faults)).shuffle(faults)
    victim, fault = faults[number % len(faults)]
    print(f"round {number}, {what}: {fault.__name__} {victim.command or victim.comm}")
    # the launcher may still be at its last work, the trace
    with suppress(ProcessLookupError, FileNotFoundError):
        fault(victim)
    time.sleep(chance.random() / 5)  # time for the fault to show


def _assert_soon_idle_and_nothing_left(cluster: Cluster) -> None:
    until("idle nodes", lambda: _idle(cluster), 30)
    assert not [p for p in _alices() if not p.command.startswith("srun")]
    assert not list(_KEPT.glob("ce-kept-*/*"))


@pytest.fixture(scope="module")
def again(cluster: Cluster) -> Iterator[Site]:
    """Yield a site with an environment whose starts a node repeats, hooks and all."""
    directory = Path(tempfile.mkdtemp(prefix="again-", dir=cluster.scratch))
    directory.chmod(0o777)
    with Node(cluster, directory) as node, with_hook(node, cluster.image("demo")) as site:
        # With traces, one start in some dozens would be Python's, which removes old traces.
        site.configure('trace_dir = ""\n')
        yield site


@pytest.mark.parametrize("number", range(_ROUNDS))
@pytest.mark.parametrize("what", ["a step", "containers of tasks", "a start that is repeated"])
def test_whatever_is_stopped_or_killed_the_node_is_soon_idle_and_nothing_is_left(
    cluster: Cluster, daemonic: str, what: str, number: int, request: pytest.FixtureRequest
) -> None:
    again: Site | None = None
    if what == "a step":
        edf = daemonic
    elif what == "containers of tasks":
        edf = cluster.edf('[annotations]\ncom.ce.scope = "task"\ncom.ce.start = "crun"\n')
    else:
        again = request.getfixturevalue("again")
        again.know()
        edf = again.edf
    before = again.node.pythons if again else 0
    with _running(cluster, edf) as job:
        assert again is None or again.node.pythons == before
        _assert_in_steps_of(job_id(cluster))
        _play(number, what)
        cluster.run(["scancel", "-u", ALICE])
        job.wait()
    _assert_soon_idle_and_nothing_left(cluster)


# ---- containers that live with their job ---------------------------------------------------------

_READING = "echo up; while :; do find / -xdev >/dev/null 2>&1; sleep 0.02; done"


@contextmanager
def _running_kept(cluster: Cluster, edf: str, history: str) -> Iterator[Job]:
    """Run a job with a container that is new, continued by a second step, or has two steps."""
    srun = "srun -n1 --overlap --container-name=k"
    first = {
        "new": "",
        "goes on": f"{srun} --environment={edf} touch /file\n",
        # a shell without job control gives a background command no standard input
        "joined": f"{srun} --environment={edf} sh -c '{_READING}' & read line\n",
    }[history]
    script = f"{first}{srun} --environment={edf} sh -c '{_READING}' & wait"
    with started(cluster, "salloc", "--quiet", "-wn1", "-n2", "sh", "-ec", script) as job:
        if history == "joined":
            job.wait_for_lines(1)
            job.write("\n")
        job.wait_for_lines(2 if history == "joined" else 1)
        yield job


@pytest.mark.parametrize("number", range(_KEPT_ROUNDS))
def test_whatever_is_stopped_or_killed_a_container_of_the_job_ends_with_it(
    cluster: Cluster, daemonic: str, number: int
) -> None:
    history = ("new", "goes on", "joined")[number % 3]
    with _running_kept(cluster, daemonic, history) as job:
        _assert_in_steps_of(job_id(cluster))
        _play(number // 3, history)
        cluster.run(["scancel", "-u", ALICE])
        job.wait()
    _assert_soon_idle_and_nothing_left(cluster)


@pytest.mark.parametrize("victim", ["ce-guard", "ce-image"])
def test_a_container_whose_processes_hang_holds_up_no_later_step_for_ever(
    cluster: Cluster, victim: str
) -> None:
    edf = cluster.edf('[annotations]\n"com.ce.start_timeout_s" = "3"\n')
    with _running_kept(cluster, edf, "new") as job:
        number = job_id(cluster)
        hung = [process for process in helpers() if process.comm == victim]
        assert hung
        for process in hung:
            os.kill(process.pid, signal.SIGSTOP)
        join = ["srun", f"--jobid={number}", "-n1", "--overlap", "--container-name=k:exec", "true"]
        done = cluster.run(join, timeout=60)
        # if ce-image hangs, the joining step's own server may answer in its place
        assert done.returncode in ({125} if victim == "ce-guard" else {0, 125}), done.stderr
        cluster.run(["scancel", number])
        job.wait()
    _assert_soon_idle_and_nothing_left(cluster)


# ---- the epilog ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [[], ["--container-name=k"]], ids=["a step", "a job"])
def test_a_daemon_without_variables_whose_slurmstepd_was_killed_the_epilog_ends(
    cluster: Cluster, daemonic: str, kept: list[str]
) -> None:
    with _running(cluster, daemonic, *kept) as job:
        number = job_id(cluster)
        (stepd,) = [p for p in procfs.processes() if f"slurmstepd: [{number}.0]" in p.command]
        _kill(stepd)
        until("the helpers' end", lambda: not helpers(), 10)
        cluster.run(["scancel", number])
        job.wait()
    _assert_soon_idle_and_nothing_left(cluster)


@contextmanager
def _mute_directory(cluster: Cluster) -> Iterator[None]:
    """Mount a file system that never answers where the epilog looks in the user's home."""
    state = cluster.home() / ".local/state/container-engine"
    place = state / "void"
    made = cluster.run(["mkdir", "-p", str(place)])
    assert made.returncode == 0, made.stderr
    # the working tree may be root's alone
    program = cluster.write(_FUSE.read_text())
    with started(cluster, "python3", str(program), str(place)) as server:
        server.wait_for_lines(1)
        try:
            yield
        finally:
            cluster.run(["fusermount3", "-u", "-z", str(place)])


def _epilogs() -> list[Process]:
    return [process for process in _alices() if process.comm == "epilog"]


def test_an_epilog_that_hangs_in_a_users_file_system_cannot_be_traced_and_holds_up_nobody(
    cluster: Cluster, demo: str
) -> None:
    with _mute_directory(cluster):
        assert cluster.srun(f"--environment={demo}", "-w", "n1", "true").returncode == 0
        (epilog,) = until("the epilog", _epilogs, 20)
        # The kernel gives the files of a process that is not dumpable to root.
        assert (procfs.PROC / str(epilog.pid) / "environ").stat().st_uid == 0
        until("idle nodes", lambda: _idle(cluster), 20)
    until("the epilog to end", lambda: not _epilogs(), 20)


# ---- without cgroups -----------------------------------------------------------------------------


@pytest.fixture
def _by_parents(cluster: Cluster) -> Iterator[None]:
    """Let Slurm track processes by parents only, as on a system whose cgroups it cannot use."""
    assert_nothing_left(cluster)
    done = sandbox("up", "--tracking", "linuxproc")
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        done = sandbox("up", "--tracking", "cgroup")
        assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("_by_parents")
def test_without_cgroups_all_of_a_step_ends_with_it_too(cluster: Cluster, daemonic: str) -> None:
    done = cluster.srun("-N2", f"--environment={daemonic}", "true")
    assert (done.returncode, done.stderr) == (0, "")
    assert _DAEMON not in [process.command for process in _alices()]
    with _running(cluster, daemonic) as job:
        servers = [process for process in helpers() if process.comm == "ce-image"]
        os.kill(servers[0].pid, signal.SIGSTOP)
        cluster.run(["scancel", job_id(cluster)])
        job.wait()
    until("idle nodes", lambda: _idle(cluster), 30)
    until("the end of all", lambda: not _of_step(), 10)


@pytest.mark.parametrize("settings", ["", '[annotations.com.ce]\nscope = "task"\n'])
def test_what_a_task_leaves_running_is_ended_before_its_image(
    cluster: Cluster, shared: Path, settings: str
) -> None:
    """A script would go on with its next command if the image were gone, and programs fail."""
    edf = cluster.edf(f'mounts = ["{shared}"]\n{settings}')
    script = f"(sleep 30; echo $? >>{shared}/lost) & exit 4"
    for _ in range(12):
        done = cluster.srun("-n1", f"--environment={edf}", "sh", "-c", script)
        assert done.returncode == 4
    assert not (shared / "lost").exists()
