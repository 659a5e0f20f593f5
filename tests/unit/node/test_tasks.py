"""The processes that count as tasks of a container, and the containers joined by number."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from container_engine.base.errors import LaunchError, UserError
from container_engine.node.container.description import INIT_NAME
from container_engine.node.inside import tasks
from container_engine.node.job_containers import enter
from container_engine.node.job_containers.enter import JobContainer, Running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes mount namespaces")

Start = Callable[..., int]
_TASK = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1", "SLURMD_NODENAME": "n1"}


@pytest.fixture
def start() -> Iterator[Start]:
    """Yield a function that starts a process, in a mount namespace of its own or in ours."""
    with ExitStack() as running:

        def begin(*, inside: bool, program: str = "sleep", **variables: str) -> int:
            own = ["unshare", "--mount"] if inside else []
            env = {"PATH": "/usr/bin:/bin", **_TASK, **variables}
            argv = [*own, "sh", "-c", 'echo; exec "$0" 60', program]
            child = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE)
            running.enter_context(child)
            running.callback(child.kill)
            assert child.stdout is not None
            child.stdout.readline()
            while b"sh\0-c" in Path(f"/proc/{child.pid}/cmdline").read_bytes():
                os.sched_yield()
            return child.pid

        yield begin


def _pid(task: tasks.Task) -> int:
    return int(os.path.basename(os.readlink(f"/proc/self/fd/{task.directory}")))


def test_a_step_is_joined_by_a_task_of_it_that_runs_in_a_container(start: Start) -> None:
    start(inside=False)
    start(inside=True, SLURM_STEP_ID="2")
    start(inside=True, SLURM_JOB_ID="8")
    start(inside=True, SLURMD_NODENAME="n2")
    with pytest.raises(UserError, match=r"no task of step 7\.1 runs in a container on n1"):
        tasks.find("7", "1", "n1")
    task = start(inside=True)
    assert _pid(tasks.find("7", "1", "n1")) == task


def test_names_are_those_of_the_jobs_containers(start: Start) -> None:
    start(inside=False, CE_CONTAINER_NAME="outside")
    start(inside=True, CE_CONTAINER_NAME="other", SLURM_JOB_ID="8")
    own = start(inside=True, CE_CONTAINER_NAME="mine")
    assert tasks.named("7") == {"mine": own}


def test_a_process_outside_a_container_cannot_be_joined(start: Start) -> None:
    outside, inside = start(inside=False), start(inside=True)
    with pytest.raises(UserError, match=f"process {outside} is not one of yours in a container"):
        tasks.of_process(outside)
    assert _pid(tasks.of_process(inside)) == inside


def test_the_first_process_is_that_of_the_same_container(start: Start, tmp_path: Path) -> None:
    program = str(tmp_path / INIT_NAME)
    shutil.copy(shutil.which("sleep") or "", program)
    inits = [start(inside=True, program=program) for _number in range(2)]
    for init in reversed(inits):
        namespace = os.readlink(f"/proc/{init}/ns/mnt")
        assert _pid(tasks.of_namespace(namespace)) == init
    other = os.readlink(f"/proc/{start(inside=True)}/ns/mnt")
    with pytest.raises(UserError, match="the container has ended"):
        tasks.of_namespace(other)


def test_the_guard_of_a_step_watches_what_is_above_its_task(start: Start, tmp_path: Path) -> None:
    program = str(tmp_path / tasks.GUARD_NAME)
    shutil.copy(shutil.which("sleep") or "", program)
    start(inside=True)
    task = tasks.find("7", "1", "n1")
    with pytest.raises(OSError, match="the step has no guard"):
        tasks.guard_of_step(task)
    other = start(inside=False)
    found = []
    for watched in (other, os.getpid()):
        pidfd = os.pidfd_open(watched)
        guard = subprocess.Popen([program, "60"], pass_fds=[pidfd])
        os.close(pidfd)
        found.append(guard)
    try:
        while (Path(f"/proc/{found[1].pid}/comm").read_text()) != f"{tasks.GUARD_NAME}\n":
            os.sched_yield()
        assert tasks.guard_of_step(task) == found[1].pid
    finally:
        for guard in found:
            guard.kill()
            guard.wait()


# ---- the container of a step ------------------------------------------------------------------


def _wanted(mode: str) -> Any:  # noqa: ANN401
    return {"name": "7.1", "key": "0" * 16, "mode": mode, "directory": "/nowhere"}


@pytest.mark.parametrize("mode", ["create", "no_exec"])
def test_the_container_of_a_step_is_joined_and_nothing_else(start: Start, mode: str) -> None:
    start(inside=True)
    with pytest.raises(LaunchError, match="the container of a step can only be joined"):
        enter.container_of_step(_wanted(mode), {"SLURMD_NODENAME": "n1"})


def test_a_step_that_joins_another_ones_container_keeps_it_for_nobody() -> None:
    names = ("ns/user", "ns/user", "ns/mnt", "environ", "mountinfo")
    fds = [os.open(f"/proc/self/{name}", os.O_RDONLY) for name in names]
    joined = Running(JobContainer(_wanted("auto"), "", -1, ""), fds, ())
    assert joined.passed == fds[1:]
    steps = joined.operations("/ce-image", ["/pmix"], "/w", ["/home/me"])
    assert steps == [
        ("bind-inside", [str(fds[2]), "/pmix"]),
        ("root-inside", [str(fds[2]), "/w", "/home/me"]),
        ("joined", [*map(str, fds[1:])]),
    ]
    for fd in fds:
        os.close(fd)
