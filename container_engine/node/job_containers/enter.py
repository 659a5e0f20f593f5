"""Find or make a container that lives with its job: later steps of the job continue it.

On each node such a container has a directory below the user's, with what it writes, the image it
was made from, a lock, and a control socket for each step in it. The lock is held exclusively while
a step starts the container, and shared by the guard of every step that runs in it. So a later step
either joins what runs, or starts another container over what earlier ones have written.
The job's epilog removes the directory (spank_plugin/programs/epilog.c). If the node has
lost its power instead, and a requeued job comes back to it, its containers start from their images.

The container of a running step that gave it no name is JOB.STEP, as with pyxis. It can be joined;
it ends with that step, and so do the steps that have joined it.
"""

from __future__ import annotations

import os
import time
from _socket import AF_UNIX, SOCK_SEQPACKET, socket
from fcntl import LOCK_EX, LOCK_SH

from container_engine.base.errors import LaunchError, UserError
from container_engine.base.files import read_regular, write_private
from container_engine.base.mounts import remove_tree
from container_engine.edf.names import is_step
from container_engine.node import protocol
from container_engine.node.container.description import BEGUN, STARTED
from container_engine.node.container.guard import in_order, receive
from container_engine.node.job_containers.directory import MUST_EXIST, directory_of, locked
from container_engine.node.plan_json import parse_json, to_json
from container_engine.node.slurm_step import node_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from container_engine.node.container.description import Operation
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import KeptContainer


_ROOM = "make room on the node's disk, or ask the site for another kept_dir"
_NOT_MINE = "if it belongs to another user, that user or the site must remove it"
# in a guard's answer, the name of the descriptor of the container's root; the others are images
_ROOT = "."


class JobContainer:
    """The directory of a container that this step starts; `lock` is held exclusively.

    The guard will admit later steps at `control_socket`. `begun` are files for it to make when the
    engine has written its own files. It enters the user namespace `guards_ns` unless that is -1,
    and inherits `passed`.
    """

    guards_ns = -1

    def __init__(
        self, wanted: KeptContainer, directory: str, lock: int, control_socket: str
    ) -> None:
        self.wanted, self.directory, self.lock = wanted, directory, lock
        self.control_socket = control_socket
        self.records = Records(directory, wanted)
        self.begun: list[str] = []

    @property
    def passed(self) -> list[int]:
        return [self.lock]

    def again(self, _server: str, _root: str) -> list[Operation]:
        """Return the operations that reuse another step's mounts of the images: none here."""
        return []

    def operation(self) -> Operation:
        """Return the operation with which the guard admits later steps."""
        return ("keep", [str(self.lock), self.control_socket])


class Running(JobContainer):
    """A container that runs, as another step's guard has handed it over.

    `lock` is shared; it is -1 for a container that ends with another step, which admits no more.
    `guards_ns` is the user namespace of that guard, `environment` the environment of the
    container's first process. `named` are FUSE devices by their images' paths, each with the file
    in which its server counts, if there is one. `figures` are such files of images that this step
    does not serve.
    """

    def __init__(
        self,
        kept: JobContainer,
        fds: Sequence[int],
        named: Sequence[tuple[str, Sequence[int]]],
        figures: Sequence[int] = (),
    ) -> None:
        super().__init__(kept.wanted, kept.directory, kept.lock, kept.control_socket)
        self.guards_ns, *self._container = fds
        self._images = [pair for pair in named if pair[0] != _ROOT]
        self._root = next((fd for name, [fd, *_] in named if name == _ROOT), -1)
        self._figures = figures
        # opened again, because other steps share the descriptor's position
        with open(f"/proc/self/fd/{self._container[protocol.CE_AT_ENVIRONMENT]}", "rb") as file:
            self.environment = file.read()
        self.warnings: tuple[str, ...] = ()

    @property
    def passed(self) -> list[int]:
        served = [fd for _image, fds in self._images for fd in fds]
        found = (self.lock, *self._container, *served, self._root, *self._figures)
        return [fd for fd in found if fd >= 0]

    @property
    def images(self) -> list[str]:
        """The paths of the images that this step's guard serves, too."""
        return [image for image, _fds in self._images]

    @property
    def shares_files(self) -> bool:
        """True if another container can be started over the same files."""
        return self._root >= 0

    @property
    def unshared(self) -> set[str]:
        """The kinds of the container's own namespaces."""
        links = (os.readlink(f"/proc/self/fd/{fd}") for fd in self._container)
        return {link.partition(":")[0] for link in links}

    def again(self, server: str, root: str) -> list[Operation]:
        return [*self._served(server), ("root-again", [str(self._root), root])]

    def _served(self, server: str) -> list[Operation]:
        return [("fuse-again", [server, image, *map(str, fds)]) for image, fds in self._images]

    def operations(
        self, server: str, mounted: Sequence[str], workdir: str, directories: Sequence[str]
    ) -> list[Operation]:
        """Return the operations with which a guard joins.

        It mounts the directories `mounted` of the step, makes `directories` in the container, and
        checks the tasks' working directory.
        """
        mount_ns = str(self._container[1])
        keep = [self.operation()] if self.lock >= 0 else []
        return [
            *keep,
            *self._served(server),
            *(("bind-inside", [mount_ns, path]) for path in mounted),
            ("root-inside", [mount_ns, workdir, *directories]),
            ("joined", [*map(str, self._container)]),
        ]


# how the names of control sockets begin
_SOCKET = "door."
# the longest path of a socket, in bytes (unix(7))
_MAX_PATH = 107
# the fewest descriptors of a container in a guard's answer: the guard's user namespace, the
# container's user and mount namespaces, its environment and its mountinfo
_LEAST = 1 + protocol.CE_AT_UNSHARED
_LOOK_S = 0.02
_VISIT_S = 10.0
_KINDS = {"net": "network", "ipc": "IPC", "uts": "UTS", "pid": "PID"}


def enter(wanted: KeptContainer, plan: NodePlan, node: Mapping[str, str]) -> JobContainer:
    """Return the container that the plan wants: a Running one to join, or one to start.

    Wait while another step starts it. Raise LaunchError if the plan does not fit what is there, or
    if the step is not in a job.
    """
    job = node.get("SLURM_JOB_ID", "")
    if not job.isdigit():
        raise refusal("it lives with a job, and there is no job here", "start it with srun", wanted)
    if is_step(wanted["name"]):
        return container_of_step(wanted, node)
    try:
        directory = directory_of(wanted["directory"], wanted["key"], job, node)
    except OSError as error:
        hint = _NOT_MINE if isinstance(error, PermissionError) else _ROOM
        reason = f"cannot use {error.filename or wanted['directory']}: {error.strerror}"
        raise refusal(reason, hint, wanted) from None
    step = node.get("SLURM_STEP_ID", "0")
    path = f"{directory}/{_SOCKET}{step}.{os.urandom(3).hex()}"
    if len(os.fsencode(path)) > _MAX_PATH:
        raise refusal(f"the path of '{directory}' is too long for a socket", "", wanted)
    try:
        lock = os.open(f"{directory}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise refusal(f"cannot write below {directory}: {error.strerror}", _ROOM, wanted) from None
    kept = JobContainer(wanted, directory, lock, path)
    if locked(lock, LOCK_EX):
        if node.get(MUST_EXIST) and not _is_there(kept):
            reason = "this job has no such container on this node"
            raise refusal(reason, "name a node that has it: ce save -w NODE", wanted)
        _begin(kept, plan)
        return kept
    if wanted["mode"] == "create":
        reason = "it runs already in another step of this job on this node"
        raise refusal(reason, "leave ':create' out to join it", wanted)
    return _await(kept, plan)


def _is_there(kept: JobContainer) -> bool:
    """Check whether an earlier step of the job has made the container."""
    return kept.records.boot() == _boot() and bool(kept.records.read("image"))


def _begin(kept: JobContainer, plan: NodePlan) -> None:
    """Prepare the directory for a start by this step. Raise LaunchError."""
    wanted, image, boot = kept.wanted, _image_of(plan), _boot()
    if kept.records.boot() != boot:
        _forget(kept)
    earlier = kept.records.read("image")
    if wanted["mode"] == "exec":
        reason = "no step of this job runs in it on this node"
        hint = "to start it, leave ':exec' out, and say --container-image or --environment"
        raise refusal(reason, hint, wanted)
    if earlier and wanted["mode"] == "create":
        reason = "this job has it on this node already"
        raise refusal(reason, "leave ':create' out to continue it", wanted)
    if earlier:
        kept.records.check_image(image)
        kept.records.check_files(plan.image_paths)
    for path in _sockets(kept.directory):
        os.unlink(path)
    _note_start(kept)
    records = {"image": image, "name": wanted["name"], "made": made_of(plan), "boot": boot}
    for name, text in records.items():
        kept.records.write(name, text)


def _image_of(plan: NodePlan) -> str:
    """Return the images of a plan as a record has them."""
    return ", ".join(plan.image_paths)


def _note_start(kept: JobContainer) -> None:
    """Record when the engine begins to write into the container, for `ce save`."""
    number = 0
    while os.path.exists(f"{kept.directory}/{STARTED}.{number}"):
        number += 1
    kept.records.write(f"{STARTED}.{number}", "")
    kept.begun = [f"{kept.directory}/{BEGUN}.{number}"]


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _forget(kept: JobContainer) -> None:
    """Remove what the job left before the node's reboot, except the lock. Raise LaunchError."""
    for name in os.listdir(kept.directory):
        path = f"{kept.directory}/{name}"
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                remove_tree(path)
            elif name != "lock":
                os.unlink(path)
        except OSError as error:
            reason = f"cannot remove {error.filename}: {error.strerror}"
            hint = "it is from before the node was rebooted; choose another name"
            raise refusal(reason, hint, kept.wanted) from None


def _await(kept: JobContainer, plan: NodePlan) -> JobContainer:
    """Return the container once it runs, to be joined, or once it has ended, to be started.

    Raise LaunchError if neither happens within the time limit of a start.
    """
    wanted, deadline = kept.wanted, time.monotonic() + plan.start_timeout_s
    reason = "another step of this job is still starting it"
    while time.monotonic() < deadline:
        if locked(kept.lock, LOCK_SH):
            running = _visit(kept, deadline)
            if running is not None:
                _compare(running, plan)
                return running
            reason = "it runs in another step of this job, which does not respond"
        if locked(kept.lock, LOCK_EX):
            _begin(kept, plan)
            return kept
        time.sleep(_LOOK_S)
    raise refusal(reason, "wait for that step, or end it: scancel JOB.STEP", wanted)


def _compare(running: Running, plan: NodePlan) -> None:
    """Warn of settings that a running container ignores.

    Raise LaunchError for another image, and for namespaces that the container does not have.
    """
    wanted = running.wanted
    running.records.check_image(_image_of(plan))
    running.records.check_files(running.images)
    # "sys" is no namespace: a container that shows the node's is warned of below
    shared = [name for name in _KINDS if name in plan.unshare and name not in running.unshared]
    if wanted["mode"] == "no_exec":
        if not running.shares_files:
            reason = "the step that started it is over, and another one still runs in it"
            raise refusal(reason, "leave ':no_exec' out to join it", wanted)
        return
    if shared:
        reason = f"it runs already, and not in a separate {_KINDS[shared[0]]} namespace"
        raise refusal(reason, "leave --container-unshare out to join it", wanted)
    if lacks := list(ignored(running.records.read("made"), plan)):
        running.warnings = (
            f"{subject(wanted)}: it runs already: ignoring {', '.join(lacks)}; it keeps"
            " what it was started with",
        )


def _visit(kept: JobContainer, deadline: float) -> Running | None:
    """Return the container that a guard hands over at a control socket; None if none does."""
    for path in _sockets(kept.directory):
        visitor = socket(AF_UNIX, SOCK_SEQPACKET)
        visitor.settimeout(min(_VISIT_S, max(deadline - time.monotonic(), _LOOK_S)))
        try:
            visitor.connect(path)
            return _handed_over(visitor, kept)
        except OSError:
            continue  # that step is over
        finally:
            visitor.close()
    return None


def _handed_over(visitor: socket, kept: JobContainer) -> Running:
    """Return the container of a guard's answer (spank_plugin/guard/guard.h).

    Raise OSError for any other answer.
    """
    fds: Sequence[int] = ()
    images: list[tuple[str, Sequence[int]]] = []
    while True:
        data, found = receive(visitor)
        is_meant = data == b"\0" or len(found) in (1, 2) if fds else len(found) >= _LEAST
        if not data or not is_meant:
            for fd in (*found, *fds, *(fd for _image, handed in images for fd in handed)):
                os.close(fd)
            raise ConnectionError
        if data == b"\0":
            return Running(kept, fds, images)
        if not fds:
            fds = found
        else:
            images.append((os.fsdecode(data), found))


def _sockets(directory: str) -> Iterator[str]:
    for name in sorted(os.listdir(directory)):
        if name.startswith(_SOCKET):
            yield f"{directory}/{name}"


def container_of_step(wanted: KeptContainer, node: Mapping[str, str]) -> Running:
    """Return the container of the step JOB.STEP. Raise LaunchError if it cannot be joined."""
    job, _dot, step = wanted["name"].partition(".")
    if wanted["mode"] not in ("auto", "exec"):
        hint = f"leave ':{wanted['mode']}' out"
        raise refusal("the container of a step can only be joined", hint, wanted)
    from container_engine.node.inside import tasks
    from container_engine.node.report import image_reads

    try:
        task = tasks.find(job, step, node_name(node))
        guard, first = tasks.guard_and_init(task)
        names = {
            protocol.CE_AT_USER_NS: "ns/user",
            protocol.CE_AT_MOUNT_NS: "ns/mnt",
            protocol.CE_AT_ENVIRONMENT: "environ",
            protocol.CE_AT_MOUNTS: "mountinfo",
        }
        every = (*in_order(names), *tasks.unshared(task))
        at_first = [os.open(name, os.O_RDONLY, dir_fd=first.directory) for name in every]
        fds = [os.open(f"/proc/{guard}/ns/user", os.O_RDONLY), *at_first]
    except UserError as error:
        raise refusal(error.reason, error.hint or "", wanted) from None
    except OSError as error:
        raise refusal(f"it has ended: {error.strerror}", "", wanted) from None
    return Running(JobContainer(wanted, "", -1, ""), fds, (), image_reads.files(guard))


def subject(wanted: KeptContainer) -> str:
    """Return what messages call the container."""
    return f"container '{wanted['name']}'" if wanted["name"] else "the job's container"


def refusal(reason: str, hint: str, wanted: KeptContainer) -> LaunchError:
    """Return the error of a step that cannot use this container."""
    name = wanted["name"]
    return LaunchError(
        reason,
        hint or None,
        "container-name",
        kind="container" if name else "the job's container",
        name=name or None,
    )


# parts of a plan that a running container cannot change, and the key that names an entry
_MADE_OF = {"mounts": "target", "devices": "name", "startup": "line"}
# the record of the variables that start-up lines have changed
EXPORTED = "exported"
# annotations about a step's own use of the container: com.ce.container_name and _save
_OF_STEP = "com.ce.container_"


class Records:
    """Files in the directory of a container. Methods raise LaunchError."""

    def __init__(self, directory: str, wanted: KeptContainer) -> None:
        self._directory, self._wanted = directory, wanted

    def read(self, name: str) -> str:
        """Return the content of the file `name`, "" if no step has written it yet."""
        try:
            return os.fsdecode(read_regular(f"{self._directory}/{name}"))
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self._damaged(name, error.strerror or str(error)) from None

    def boot(self) -> str:
        """Return the ID of the boot of the node in which the container was made, "" if none was."""
        # a loss of power may leave zeros in place of what was written last
        found = self.read("boot").strip("\0")
        if found.strip("0123456789abcdef-"):
            raise self._damaged("boot", "it is not the ID of a boot")
        return found

    def _damaged(self, name: str, why: str) -> LaunchError:
        reason = f"its record {self._directory}/{name} is damaged: {why}"
        return refusal(reason, "choose another container name", self._wanted)

    def write(self, name: str, text: str) -> None:
        """Write the file `name`."""
        try:
            write_private(self._directory, name, text.encode("utf-8", "surrogateescape"))
        except OSError as error:
            reason = f"cannot write below {self._directory}: {error.strerror}"
            raise refusal(reason, _ROOM, self._wanted) from None

    def note(self, images: Sequence[str]) -> None:
        """Record the images' identities, for later steps to compare."""
        files = {**self._files(), **{path: self._identity(path) for path in images}}
        self.write("files", to_json(files))

    def check_image(self, image: str) -> None:
        """Raise LaunchError if the container was made from another image."""
        earlier = self.read("image")
        if earlier != image:
            reason = f"this job made it from '{earlier}', and this step asks for '{image}'"
            raise refusal(reason, "choose another container name for the other image", self._wanted)

    def check_files(self, paths: Sequence[str]) -> None:
        """Raise LaunchError for a file that has been replaced since the container was made."""
        known = self._files()
        for path in paths:
            if path in known and known[path] != self._identity(path):
                reason = f"'{path}' has been replaced since this job made it"
                raise refusal(
                    reason, "to use the new file, choose another container name", self._wanted
                )

    def _files(self) -> dict[str, str]:
        """Return the recorded identities of images, by path."""
        try:
            found: dict[str, str] = parse_json(self.read("files") or "{}")
        except (ValueError, RecursionError):
            raise self._damaged("files", "it is not a JSON document") from None
        if not isinstance(found, dict):
            raise self._damaged("files", "it is not a JSON object")
        return found

    def _identity(self, path: str) -> str:
        try:
            status = os.stat(path)
        except OSError as error:
            hint = "if the image is gone, choose another image and another container name"
            raise refusal(f"'{path}': {error.strerror}", hint, self._wanted) from None
        return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"


def made_of(plan: NodePlan) -> str:
    """Return, as JSON, the parts of a plan that a running container cannot change."""
    lasting = {"writable": plan.writable, "annotations": _lasting(plan)}
    return to_json({key: getattr(plan, key) for key in _MADE_OF} | lasting)


def _lasting(plan: NodePlan) -> dict[str, str]:
    return {k: value for k, value in plan.annotations.items() if not k.startswith(_OF_STEP)}


def ignored(made: str, plan: NodePlan) -> Iterator[str]:
    """Yield what the plan asks for that a container with the record `made` was not started with.

    What else the container has does not matter: a step that gives only its name takes it as it is.
    """
    if made == made_of(plan):
        return
    earlier = _parsed(made)
    for key, name in _MADE_OF.items():
        there = [_without_origin(one) for one in earlier.get(key) or () if isinstance(one, dict)]
        for one in getattr(plan, key):
            if _without_origin(one) not in there:
                what = one.get(name)
                yield f"{one['from']} ({what})" if isinstance(what, str) else one["from"]
    if plan.writable and not earlier.get("writable"):
        yield f"{plan.writable_from} (writable)"
    lasting = earlier.get("annotations")
    lasting = lasting if isinstance(lasting, dict) else {}
    for key, value in _lasting(plan).items():
        if lasting.get(key) != value:
            yield f"{plan.annotations_from.get(key, 'the environment')} ({key})"


def note_exported(kept: JobContainer, changes: Mapping[str, str | None]) -> None:
    """Record what the start-up lines have changed in the tasks' environment. Raise LaunchError."""
    kept.records.write(EXPORTED, to_json(changes))


def exported(directory: str, plan: NodePlan) -> dict[str, str | None]:
    """Return what the start-up lines of a container that runs have changed in the environment.

    It is for steps whose plan has these lines: they do not run again. Raise LaunchError.
    """
    if not plan.startup or plan.kept is None:
        return {}
    records = Records(directory, plan.kept)
    lines = [one["line"] for one in _parsed(records.read("made")).get("startup") or ()]
    if any(one["line"] not in lines for one in plan.startup):
        return {}
    return {**_parsed(records.read(EXPORTED))}


def _parsed(made: str) -> dict[str, Any]:
    """Return the parts in a record, none of one that is damaged."""
    try:
        found = parse_json(made)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _without_origin(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "from"}
