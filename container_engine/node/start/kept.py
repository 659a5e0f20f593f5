"""Find or make a container that lives with its job: later steps of the job continue it.

On each node such a container has a directory, below the user's: what it writes, the image it was
made from, a lock, and a socket (a door) for each step in it. The lock is held exclusively while a
step starts the container, and shared by the guard of every step that runs in it. So a later step
either joins what runs, or starts another container over what earlier ones have written.
The job's end removes the directory (spank_plugin/programs/epilog.c). A node that loses its power
cannot, and a job that is requeued may come back to it: its containers start from their images.
"""

from __future__ import annotations

import os
import stat
import time
from _socket import AF_UNIX, SOCK_SEQPACKET, socket
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock

from container_engine.edf.pyxis_names import is_step
from container_engine.errors import LaunchError
from container_engine.node.node_name import node_name
from container_engine.node.plan_json import image_paths, parse_json, to_json
from container_engine.node.start.container import BEGUN, STARTED
from container_engine.node.start.guard import receive
from container_engine.remove_tree import remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from container_engine.node.plan_types import KeptContainer, LaunchPlan
    from container_engine.node.start.container import Operation

_SEE = "container-name"
_ROOM = "make room on the node's disk, or ask the site for another kept_dir"
_DOOR = "door."
# of a socket's path, see unix(7)
_MAX_PATH = 107
# in a guard's answer, in the place of an image's path: the mount of the container's root
_ROOT = "."
_NAMELESS = ".removed."
# a guard's user namespace, the container's two, its environment and its mountinfo
_LEAST = 5
_LOOK_S = 0.02
_VISIT_S = 10.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_KINDS = {"net": "network", "ipc": "IPC", "uts": "UTS", "pid": "PID"}
# what a running container has already, whatever a later step asks for, and what to call an entry
_MADE_OF = {"mounts": "target", "devices": "name", "startup": "line"}
# annotations that say what a step does with it: com.ce.container_name, com.ce.container_save
_OF_STEP = "com.ce.container_"


class Kept:
    """The directory of a container that this step starts; `lock` is held exclusively.

    `begun` are files for the guard to make when the engine has written its own. The guard enters
    the user namespace `guards_ns` unless it is -1, and inherits `passed`.
    """

    guards_ns = -1

    def __init__(self, wanted: KeptContainer, directory: str, lock: int, door: str) -> None:
        self.wanted, self.directory, self.lock, self.door = wanted, directory, lock, door
        self.begun: list[str] = []

    @property
    def passed(self) -> list[int]:
        return [self.lock]

    def note(self, images: Sequence[str]) -> None:
        """Record which files are served, for steps that serve them again. Raise LaunchError."""
        files = {**_files(self), **{path: _identity(path, self.wanted) for path in images}}
        _write(self, "files", to_json(files))

    def again(self, _server: str, _root: str) -> list[Operation]:
        """Return the operations that serve and mount the images; none if nobody has done so."""
        return []

    def close(self) -> None:
        """Close what belongs to the guard now."""
        os.close(self.lock)

    def operation(self) -> Operation:
        """Return the guard's operation that lets later steps come to it."""
        return ("keep", [str(self.lock), self.door])


class Running(Kept):
    """A container that runs, as another step's guard has handed it over; `lock` is shared.

    `guards_ns` is the user namespace of that guard, `environment` that of the container's first
    process.
    """

    def __init__(self, kept: Kept, fds: Sequence[int], named: Sequence[tuple[str, int]]) -> None:
        super().__init__(kept.wanted, kept.directory, kept.lock, kept.door)
        self.guards_ns, *self._container = fds
        self._images = [pair for pair in named if pair[0] != _ROOT]
        self._root = next((fd for name, fd in named if name == _ROOT), -1)
        # the descriptor's position is shared with other steps
        with open(f"/proc/self/fd/{fds[3]}", "rb") as file:
            self.environment = file.read()
        self.warnings: tuple[str, ...] = ()

    @property
    def passed(self) -> list[int]:
        devices = [device for _image, device in self._images]
        roots = [self._root] if self._root >= 0 else []
        return [self.lock, *self._container, *devices, *roots]

    @property
    def images(self) -> list[str]:
        """The paths of the images that are to be served again."""
        return [image for image, _device in self._images]

    @property
    def shares_files(self) -> bool:
        """True if another container can be started over the same files."""
        return self._root >= 0

    @property
    def unshared(self) -> set[str]:
        """The kinds of namespaces, besides those of users and mounts, that it has of its own."""
        links = (os.readlink(f"/proc/self/fd/{fd}") for fd in self._container)
        return {link.partition(":")[0] for link in links}

    def again(self, server: str, root: str) -> list[Operation]:
        return [*self._served(server), ("root-again", [str(self._root), root])]

    def _served(self, server: str) -> list[Operation]:
        return [("fuse-again", [server, image, str(device)]) for image, device in self._images]

    def operations(self, server: str, directories: Sequence[str]) -> list[Operation]:
        """Return the operations of a guard that joins and mounts these directories of the step."""
        mount_ns = str(self._container[1])
        return [
            self.operation(),
            *self._served(server),
            *(("bind-inside", [mount_ns, path]) for path in directories),
            ("joined", [*map(str, self._container)]),
        ]

    def close(self) -> None:
        for fd in (self.guards_ns, *self.passed):
            os.close(fd)


def enter(wanted: KeptContainer, plan: LaunchPlan, node: Mapping[str, str]) -> Kept:
    """Return the container that the plan wants: a Running one, or its directory for a start.

    Wait while another step starts it. Raise LaunchError if the plan wants something else than what
    is there.
    """
    job = node.get("SLURM_JOB_ID", "")
    if not job.isdigit():
        raise _error("it lives with a job, and this is none", "start it with srun", wanted)
    if is_step(wanted["name"]):
        from container_engine.node.start import of_step

        return of_step.enter(wanted, node)
    directory = _directory(wanted, job, node)
    step = node.get("SLURM_STEP_ID", "0")
    door = f"{directory}/{_DOOR}{step}.{os.urandom(3).hex()}"
    if len(os.fsencode(door)) > _MAX_PATH:
        raise _error(f"the path of '{directory}' is too long for a socket", "", wanted)
    try:
        lock = os.open(f"{directory}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _error(f"cannot write below {directory}: {error.strerror}", _ROOM, wanted) from None
    kept = Kept(wanted, directory, lock, door)
    if _locked(lock, LOCK_EX):
        _begin(kept, plan)
        return kept
    if wanted["mode"] == "create":
        reason = "it runs already in another step of this job on this node"
        raise _error(reason, "leave ':create' out to join it", wanted)
    return _await(kept, plan)


def names_here(directory: str, job: str, node: str) -> dict[str, str]:
    """Return the names of the job's kept containers on this node, with their directories."""
    place = _existing(directory, _of_job(job, node))
    found = {}
    for key in sorted(os.listdir(place)) if place else ():
        if _NAMELESS in key:
            continue
        try:
            with open(f"{place}/{key}/name", encoding="utf-8") as file:
                name = file.read()
        except OSError:
            continue
        if name:
            found[name] = f"{place}/{key}"
    return found


def remove(directory: str, *, force: bool = False) -> bool:
    """Remove a kept container. Return False if it runs and stays. Raise OSError.

    With `force`, one that runs loses its name; its steps go on, and the job's end removes it.
    """
    lock = os.open(f"{directory}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _locked(lock, LOCK_EX):
            if force:
                os.rename(directory, f"{directory}{_NAMELESS}{os.urandom(3).hex()}")
            return force
        remove_tree(directory)
        return True
    finally:
        os.close(lock)


def _directory(wanted: KeptContainer, job: str, node: Mapping[str, str]) -> str:
    """Return the container's directory, made if need be, with no way in for another user."""
    place, name = wanted["directory"], _of_job(job, node_name(node))
    path = _of_user(place)
    try:
        path = _existing(place, name) or f"{_taken(path, node)}/{name}"
        _private(path)
        path = f"{path}/{wanted['key']}"
        _private(path)
    except OSError as error:
        hint = "if it is another user's, that user or the site must remove it"
        reason = f"cannot use {error.filename or path}: {error.strerror}"
        raise _error(reason, hint, wanted) from None
    return path


def _of_user(directory: str) -> str:
    """Return the directory of the user's kept containers; spank_plugin/programs/epilog.c has it."""
    return f"{directory}/ce-kept-{os.geteuid()}"


def _existing(directory: str, name: str) -> str:
    """Return the job's directory, wherever the first step had to make it; "" without one."""
    path = _of_user(directory)
    if _is_private(f"{path}/{name}") and _is_private(path):
        return f"{path}/{name}"
    prefix = f"{os.path.basename(path)}."
    others = os.listdir(directory) if os.path.isdir(directory) else []
    for one in (f"{directory}/{other}" for other in sorted(others) if other.startswith(prefix)):
        if _is_private(one) and _is_private(f"{one}/{name}"):
            return f"{one}/{name}"
    return ""


def _taken(path: str, node: Mapping[str, str]) -> str:
    """Make the user's directory, or another if that name is somebody else's. Raise OSError.

    Nobody else can guess that other name, and all steps of the job compute the same.
    """
    try:
        _private(path)
    except _NotPrivateError:
        from hashlib import sha256

        from container_engine.node.ssh import secret

        own = secret.of_job(node, node["HOME"], "") if node.get("HOME") else ""
        if not own:
            raise
        path = f"{path}.{sha256(f'kept {own}'.encode()).hexdigest()[:16]}"
        _private(path)
    return path


def _of_job(job: str, node: str) -> str:
    return f"{job}.{node}"


class _NotPrivateError(PermissionError):
    """The error for a path that is taken, and not by a directory of the user's alone."""


def _private(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not _is_private(path):
            raise _NotPrivateError(1, "it is not a directory of yours alone", path) from None


def _is_private(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return is_own and not found.st_mode & _OTHERS


def _locked(lock: int, how: int) -> bool:
    try:
        flock(lock, how | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _begin(kept: Kept, plan: LaunchPlan) -> None:
    """Prepare the directory for a start by this step. Raise LaunchError."""
    wanted, image, boot = kept.wanted, _image(plan), _boot()
    if _recorded(kept, "boot") != boot:
        _forget(kept)
    earlier = _recorded(kept, "image")
    if wanted["mode"] == "exec":
        reason = "no step of this job runs in it on this node"
        hint = "to start it, leave ':exec' out, and say --container-image or --environment"
        raise _error(reason, hint, wanted)
    if earlier and wanted["mode"] == "create":
        reason = "this job has it on this node already"
        raise _error(reason, "leave ':create' out to go on with it", wanted)
    if earlier:
        _check_image(kept, earlier, image)
        _check_files(kept, image_paths(plan))
    for door in _doors(kept.directory):
        os.unlink(door)
    _note_start(kept)
    records = {"image": image, "name": wanted["name"], "made": _made_of(plan), "boot": boot}
    for name, text in records.items():
        _write(kept, name, text)


def _write(kept: Kept, name: str, text: str) -> None:
    """Record something of the container. Raise LaunchError."""
    try:
        record(kept.directory, name, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        reason = f"cannot write below {kept.directory}: {error.strerror}"
        raise _error(reason, _ROOM, kept.wanted) from None


def record(directory: str, name: str, content: bytes) -> None:
    """Write a file of the container's directory, all of it or nothing. Raise OSError."""
    draft = f"{directory}/.{name}.{os.urandom(3).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, 0o600), "wb") as file:
            file.write(content)
        os.rename(draft, f"{directory}/{name}")
    except OSError:
        if os.path.lexists(draft):
            os.unlink(draft)
        raise


def _note_start(kept: Kept) -> None:
    """Note when the engine begins to write into the container, for those who save it."""
    number = 0
    while os.path.exists(f"{kept.directory}/{STARTED}.{number}"):
        number += 1
    _write(kept, f"{STARTED}.{number}", "")
    kept.begun = [f"{kept.directory}/{BEGUN}.{number}"]


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _forget(kept: Kept) -> None:
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
            hint = "it is of the time before the node was rebooted; give another name"
            raise _error(reason, hint, kept.wanted) from None


def _recorded(kept: Kept, name: str) -> str:
    """Return what an earlier step has recorded of the container, "" before the first one."""
    path = f"{kept.directory}/{name}"
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _check_image(kept: Kept, earlier: str, image: str) -> None:
    if earlier != image:
        reason = f"this job made it from '{earlier}', and this step is to run '{image}'"
        raise _error(reason, "give the other image another name", kept.wanted)


def _files(kept: Kept) -> dict[str, str]:
    """Return the identities of the files that are known to be served, by path."""
    found: dict[str, str] = parse_json(_recorded(kept, "files") or "{}")
    return found


def _identity(path: str, wanted: KeptContainer) -> str:
    try:
        status = os.stat(path)
    except OSError as error:
        hint = "if the image is gone, give another name with another image"
        raise _error(f"'{path}': {error.strerror}", hint, wanted) from None
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"


def _check_files(kept: Kept, paths: Sequence[str]) -> None:
    """Refuse files that have been replaced: the container has seen the content of the old ones."""
    known = _files(kept)
    for path in paths:
        if path in known and known[path] != _identity(path, kept.wanted):
            reason = f"'{path}' has been replaced since this job made it"
            raise _error(reason, "to use the new file, give another name", kept.wanted)


def _image(plan: LaunchPlan) -> str:
    return ", ".join(image_paths(plan))


def _made_of(plan: LaunchPlan) -> str:
    lasting = {"writable": plan.get("writable"), "annotations": _lasting(plan)}
    return to_json({key: plan.get(key) for key in _MADE_OF} | lasting)


def _lasting(plan: LaunchPlan) -> dict[str, str]:
    given = plan.get("annotations", {}).items()
    return {key: value for key, value in given if not key.startswith(_OF_STEP)}


def _doors(directory: str) -> Iterator[str]:
    for name in sorted(os.listdir(directory)):
        if name.startswith(_DOOR):
            yield f"{directory}/{name}"


def _await(kept: Kept, plan: LaunchPlan) -> Kept:
    """Wait until the container runs, and join it, or until it has ended, and start it."""
    wanted, deadline = kept.wanted, time.monotonic() + plan["settings"]["start_timeout_s"]
    reason = "another step of this job starts it and is not done"
    while time.monotonic() < deadline:
        if _locked(kept.lock, LOCK_SH):
            running = _visit(kept, deadline)
            if running is not None:
                _compare(running, plan)
                return running
            reason = "it runs in another step of this job, and nothing answers there"
        if _locked(kept.lock, LOCK_EX):
            _begin(kept, plan)
            return kept
        time.sleep(_LOOK_S)
    raise _error(reason, "wait for that step, or end it: scancel JOB.STEP", wanted)


def _compare(running: Running, plan: LaunchPlan) -> None:
    """Refuse another image; warn of what a running container cannot get any more."""
    wanted = running.wanted
    _check_image(running, _recorded(running, "image"), _image(plan))
    _check_files(running, running.images)
    shared = [name for name in plan["settings"].get("unshare", ()) if name not in running.unshared]
    if wanted["mode"] == "no_exec":
        if not running.shares_files:
            reason = "the step that started it is over, and another one still runs in it"
            raise _error(reason, "leave ':no_exec' out to join it", wanted)
        return
    if shared:
        reason = f"it runs already, and not in a separate {_KINDS[shared[0]]} namespace"
        raise _error(reason, "leave --container-unshare out to join it", wanted)
    if ignored := list(_ignored(_recorded(running, "made"), plan)):
        running.warnings = (
            f"{_subject(wanted)}: it runs already: ignoring {', '.join(ignored)}; what counts is"
            " what it was started with",
        )


def _ignored(made: str, plan: LaunchPlan) -> Iterator[str]:
    """Yield what this plan asks for that a container with this record was not started with.

    What it has beyond that is no matter: a step that gives no more than its name wants it as it is.
    """
    if made == _made_of(plan):
        return
    try:
        earlier: dict[str, Any] = parse_json(made)
    except ValueError:
        earlier = {}
    asked: Any = plan
    for key, name in _MADE_OF.items():
        there = [_without_origin(one) for one in earlier.get(key) or ()]
        for one in asked.get(key) or ():
            if _without_origin(one) not in there:
                what = one.get(name)
                yield f"{one['from']} ({what})" if isinstance(what, str) else one["from"]
    if plan.get("writable") and not earlier.get("writable"):
        yield f"{plan['writable_from']} (writable)"
    origins = plan.get("annotations_from", {})
    lasting = earlier.get("annotations") or {}
    for key, value in _lasting(plan).items():
        if lasting.get(key) != value:
            yield f"{origins.get(key, 'the environment')} ({key})"


def _without_origin(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "from"}


def _visit(kept: Kept, deadline: float) -> Running | None:
    """Return what the guard at the first open door hands over, None without one."""
    for door in _doors(kept.directory):
        visitor = socket(AF_UNIX, SOCK_SEQPACKET)
        visitor.settimeout(min(_VISIT_S, max(deadline - time.monotonic(), _LOOK_S)))
        try:
            visitor.connect(door)
            return _handed_over(visitor, kept)
        except OSError:
            continue  # that step is over
        finally:
            visitor.close()
    return None


def _handed_over(visitor: socket, kept: Kept) -> Running:
    """Read a guard's answer (spank_plugin/guard/guard_door.h). Raise OSError for another one."""
    fds: Sequence[int] = ()
    images: list[tuple[str, int]] = []
    while True:
        data, found = receive(visitor)
        is_meant = data == b"\0" or len(found) == 1 if fds else len(found) >= _LEAST
        if not data or not is_meant:
            for fd in (*found, *fds, *(device for _image, device in images)):
                os.close(fd)
            raise ConnectionError
        if data == b"\0":
            return Running(kept, fds, images)
        if not fds:
            fds = found
        else:
            images.append((os.fsdecode(data), found[0]))


def _subject(wanted: KeptContainer) -> str:
    return f"container '{wanted['name']}'" if wanted["name"] else "the job's container"


def _error(reason: str, hint: str, wanted: KeptContainer) -> LaunchError:
    name = wanted["name"]
    return LaunchError(
        reason,
        hint or None,
        _SEE,
        kind="container" if name else "the job's container",
        name=name or None,
    )
