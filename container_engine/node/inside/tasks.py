"""Find tasks that run in containers, and start commands beside them, in their environment."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

from container_engine.base.errors import UserError
from container_engine.base.mounts import Mount, mounts
from container_engine.base.process import reason
from container_engine.node.container.description import INIT_NAME, person_of_process
from container_engine.node.container.environment import parse_block
from container_engine.node.container.guard import entering, memory_file
from container_engine.node.inside import programs
from container_engine.node.report import image_reads

GUARD_NAME = "ce-guard"


class Task(NamedTuple):
    """A process of a step. `directory` is an open descriptor of its /proc/PID.

    A PID may be reused for another process; files below the descriptor are gone then, and opening
    one fails.
    """

    directory: int
    environment: Mapping[str, str]


def find(job: str, step: str, node: str) -> Task:
    """Return the step's task on this node that is in a container and has the lowest SLURM_LOCALID.

    Raise UserError if there is none.
    """
    wanted = {"SLURM_JOB_ID": job, "SLURM_STEP_ID": step, "SLURMD_NODENAME": node}
    found: list[Task] = []
    for task in _processes():
        is_ours = all(task.environment.get(name) == value for name, value in wanted.items())
        if is_ours and _is_inside(task):
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


def of_process(pid: int) -> Task:
    """Return the process `pid`. Raise UserError unless it is this user's and in a container."""
    for task in _processes():
        if _pid(task) == pid and _is_inside(task):
            return task
        os.close(task.directory)
    raise UserError(f"process {pid} is not one of yours in a container")


def named(job: str) -> dict[str, int]:
    """Return the names of the job's containers on this node, each with the ID of a process."""
    found: dict[str, int] = {}
    for task in _processes():
        name = task.environment.get("CE_CONTAINER_NAME", "")
        if name and task.environment.get("SLURM_JOB_ID") == job and _is_inside(task):
            found.setdefault(name, _pid(task))
        os.close(task.directory)
    return found


def _is_inside(task: Task) -> bool:
    return _mount_namespace(task) not in ("", os.readlink("/proc/self/ns/mnt"))


class ContainerFiles(NamedTuple):
    """The places of a running container's files.

    `guard` is the guard's process ID, `directory` its session's directory in the guard's mount
    namespace. `kept` is the directory of a container that lives with its job, else "". `images` are
    the paths of the images, the base first. `places` are the container's mount points, the user's
    homes, and all directories above them; `lines` are the lines that the engine has added to files
    of the image, by file (both as in build/container_archive.py).
    """

    guard: int
    directory: str
    kept: str
    images: tuple[str, ...]
    places: frozenset[bytes]
    lines: Mapping[bytes, bytes]


def container_files(task: Task) -> ContainerFiles:
    """Return the places of the files of the task's container.

    Raise UserError if it has ended, or if the step that made it has.
    """
    try:
        guard, _first = guard_and_init(task)
        directory = os.readlink(f"/proc/{guard}/cwd")
        images, kept = _mounted(f"/proc/{guard}/mountinfo", directory)
        own = _read(task.directory, "mountinfo").splitlines()
    except OSError as error:
        raise UserError(f"the container has ended: {reason(error)}") from None
    if not images:
        raise UserError(
            "the step that made this container is over, and others still run in it",
            "save it when no step runs in it",
        )
    person = person_of_process()
    paths = [os.fsencode(Mount(line).place) for line in own]
    paths += [os.fsencode(home) for home in (task.environment.get("HOME", "/"), person.home)]
    return ContainerFiles(
        guard,
        directory,
        kept,
        images,
        frozenset(above for path in paths for above in _with_parents(path)),
        {b"etc/passwd": os.fsencode(person.passwd), b"etc/group": os.fsencode(person.group)},
    )


def of_namespace(name: str) -> Task:
    """Return the first process of the container with the mount namespace `name`.

    Raise UserError if it has ended.
    """
    for task in _processes():
        if _mount_namespace(task) == name and _name(_pid(task)) == INIT_NAME:
            return task
        os.close(task.directory)
    raise UserError("the container has ended")


def guard_and_init(task: Task) -> tuple[int, Task]:
    """Return the ID of the guard and the first process of the container in which the task runs.

    The guard is an ancestor of that process. Raise OSError if one of them has ended.
    """
    try:
        first = of_namespace(_mount_namespace(task))
    except UserError:
        raise ProcessLookupError(errno.ESRCH, "its first process is gone") from None
    pid = _pid(first)
    while pid > 1:
        if _name(pid) == GUARD_NAME:
            return pid, first
        pid = _parent(pid)
    raise ProcessLookupError(errno.ESRCH, "no guard is above its first process")


def guard_of_step(task: Task) -> int:
    """Return the ID of the guard of the task's step, which watches a process above the task.

    Raise OSError if there is none, or the task has ended.
    """
    above, pid = set(), _pid(task)
    while pid > 1:
        above.add(pid)
        pid = _parent(pid)
    for name in filter(str.isdigit, os.listdir("/proc")):
        if _name(int(name)) == GUARD_NAME and above.intersection(_watched_by(name)):
            return int(name)
    raise ProcessLookupError(errno.ESRCH, "the step has no guard")


def _watched_by(pid: str) -> Iterator[int]:
    with contextlib.suppress(OSError):  # another user's, or ended
        for name in os.listdir(f"/proc/{pid}/fdinfo"):
            yield from image_reads.watched(f"/proc/{pid}/fdinfo/{name}")


def _pid(task: Task) -> int:
    return int(os.path.basename(os.readlink(f"/proc/self/fd/{task.directory}")))


def _name(pid: int) -> str:
    """Return the name of a process, "" if it has ended."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return os.fsdecode(file.read().rstrip(b"\n"))
    except OSError:
        return ""


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def _mounted(mountinfo: str, directory: str) -> tuple[tuple[str, ...], str]:
    """Return the sources of the mounts DIRECTORY/image, DIRECTORY/image1, …, and a directory.

    It is that of a job container, or "" if the container's changes go with its session.
    """
    sources, kept = {}, ""
    for mount in mounts(mountinfo):
        sources[mount.place] = mount.source
        if mount.place == f"{directory}/root":
            # an overlay: its upper directory has what the container writes
            given = (option.partition("=") for option in mount.options)
            kept = next((path for name, _, path in given if name == "upperdir"), "")
    found: list[str] = []
    while (place := f"{directory}/image{len(found) or ''}") in sources:
        found.append(sources[place])
    return tuple(found), "" if os.path.dirname(kept) == directory else os.path.dirname(kept)


def _with_parents(path: bytes) -> Iterator[bytes]:
    rest = path.strip(b"/")
    while rest:
        yield rest
        rest = rest.rpartition(b"/")[0]


def _local_id(task: Task) -> int:
    text = task.environment.get("SLURM_LOCALID", "")
    return int(text) if text.isdigit() else 1 << 30


def _processes() -> Iterator[Task]:
    """Yield this user's processes, each with the environment it was started with.

    The caller closes their descriptors.
    """
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


def unshared(task: Task) -> list[str]:
    """Return the namespaces that differ between the task and this process, as names in /proc/PID.

    Of PID namespaces, the one for a task's children is compared: the task itself stays in the
    host's, where Slurm watches it (spank_plugin/common/join.h).
    """
    return [
        name
        for name in ("ns/net", "ns/ipc", "ns/uts", "ns/pid_for_children")
        if os.readlink(name, dir_fd=task.directory) != os.readlink(f"/proc/self/{name}")
    ]


def _opened(task: Task, name: str) -> int:
    return os.open(name, os.O_RDONLY, dir_fd=task.directory)


def become(task: Task, argv: Sequence[str], libexec: str) -> NoReturn:
    """Replace this process with the command, in the task's namespaces and environment.

    Raise UserError if the task has ended, CeError if ce-enter cannot be started.
    """
    try:
        entered = [_opened(task, name) for name in ("ns/user", *unshared(task))]
        mounts = _opened(task, "ns/mnt")
    except OSError as error:
        raise UserError(f"the task has ended: {reason(error)}") from None
    # no changes: the command gets the whole environment with which the task was started
    records = memory_file("ce-env", b"")
    words = entering(libexec, entered, mounts, records, task.environment.get("PWD", "/"))
    programs.become([*words, *argv], task.environment)
