"""Join a running container: the namespaces and the environment of one of its tasks."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from container_engine.errors import CeError, UserError
from container_engine.node.start.environment import parse_block
from container_engine.node.start.guard import PYTHONS_SIGNALS, memory_file
from container_engine.process import reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Task(NamedTuple):
    """A process of a step. `directory` is an open descriptor of its /proc/PID.

    A PID may be reused for another process; files below the descriptor are gone then, and opening
    one fails.
    """

    directory: int
    environment: Mapping[str, str]


def find(job: str, step: str, node: str) -> Task:
    """Return the first task of the step on this node, of those that run in a container.

    Raise UserError if there is none.
    """
    wanted = {"SLURM_JOB_ID": job, "SLURM_STEP_ID": step, "SLURMD_NODENAME": node}
    found: list[Task] = []
    own = os.readlink("/proc/self/ns/mnt")
    for task in _processes():
        is_ours = all(task.environment.get(name) == value for name, value in wanted.items())
        if is_ours and _mount_namespace(task) not in ("", own):
            found.append(task)
        else:
            os.close(task.directory)
    if not found:
        raise UserError(
            f"no task of step {job}.{step} runs in a container on {node}",
            "`ce ps` lists what runs",
        )
    chosen, *others = sorted(found, key=_local_id)
    for task in others:
        os.close(task.directory)
    return chosen


def _local_id(task: Task) -> int:
    text = task.environment.get("SLURM_LOCALID", "")
    return int(text) if text.isdigit() else 1 << 30


def _processes() -> Iterator[Task]:
    """Yield this user's processes, each with the environment it was started with."""
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        try:
            directory = os.open(f"/proc/{name}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            block = _read(directory, "environ")
        except OSError:
            os.close(directory)  # another user's process, or one that has ended
            continue
        yield Task(directory, parse_block(block))


def _read(directory: int, name: str) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    with open(fd, "rb") as file:
        return file.read()


def _mount_namespace(task: Task) -> str:
    try:
        return os.readlink("ns/mnt", dir_fd=task.directory)
    except OSError:
        return ""


def become(task: Task, argv: Sequence[str], libexec: str) -> NoReturn:
    """Replace this process with the command, beside the task. Raise UserError or CeError."""
    try:
        namespaces = [
            os.open(f"ns/{name}", os.O_RDONLY, dir_fd=task.directory) for name in ("user", "mnt")
        ]
    except OSError as error:
        raise UserError(f"the task has ended: {reason(error)}") from None
    # no changes: the command gets the whole environment with which the task was started
    fds = [*namespaces, memory_file("ce-env", b"")]
    for fd in fds:
        os.set_inheritable(fd, True)
    for number in PYTHONS_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    program = f"{libexec}/ce-exec"
    workdir = task.environment.get("PWD", "/")
    try:
        os.execve(program, [program, *map(str, fds), workdir, *argv], task.environment)
    except OSError as error:
        raise CeError(f"cannot start {program}: {reason(error)}") from None
