"""Find or make a container that lives with its job: later steps of the job continue it.

On each node such a container has a directory below the user's, with what it writes, the image it
was made from, a lock, and a socket (a door) for each step in it. The lock is held exclusively while
a step starts the container, and shared by the guard of every step that runs in it. So a later step
either joins what runs, or starts another container over what earlier ones have written.
The job's epilog removes the directory (spank_plugin/programs/epilog.c). If the node has
lost its power instead, and a requeued job comes back to it, its containers start from their images.
"""

from __future__ import annotations

import os
import time
from _socket import AF_UNIX, SOCK_SEQPACKET, socket
from fcntl import LOCK_EX, LOCK_SH

from container_engine.base.mounts import remove_tree
from container_engine.edf.names import is_step
from container_engine.node import protocol
from container_engine.node.container.description import BEGUN, STARTED
from container_engine.node.container.guard import receive
from container_engine.node.kept.container import KeptOnNode, Running
from container_engine.node.kept.directories import ROOM, directory_of, locked, refusal, subject
from container_engine.node.kept.records import ignored, made_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import KeptContainer

_DOOR = "door."
# the longest path of a socket, in bytes (unix(7))
_MAX_PATH = 107
# the fewest descriptors of a container in a guard's answer: the guard's user namespace, the
# container's user and mount namespaces, its environment and its mountinfo
_LEAST = 1 + protocol.CE_AT_UNSHARED
_LOOK_S = 0.02
_VISIT_S = 10.0
_KINDS = {"net": "network", "ipc": "IPC", "uts": "UTS", "pid": "PID"}


def enter(wanted: KeptContainer, plan: NodePlan, node: Mapping[str, str]) -> KeptOnNode:
    """Return the container that the plan wants: a Running one to join, or one to start.

    Wait while another step starts it. Raise LaunchError if the plan does not fit what is there, or
    if the step is not in a job.
    """
    job = node.get("SLURM_JOB_ID", "")
    if not job.isdigit():
        raise refusal("it lives with a job, and there is no job here", "start it with srun", wanted)
    if is_step(wanted["name"]):
        from container_engine.node.kept import of_step

        return of_step.enter(wanted, node)
    directory = directory_of(wanted, job, node)
    step = node.get("SLURM_STEP_ID", "0")
    door = f"{directory}/{_DOOR}{step}.{os.urandom(3).hex()}"
    if len(os.fsencode(door)) > _MAX_PATH:
        raise refusal(f"the path of '{directory}' is too long for a socket", "", wanted)
    try:
        lock = os.open(f"{directory}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise refusal(f"cannot write below {directory}: {error.strerror}", ROOM, wanted) from None
    kept = KeptOnNode(wanted, directory, lock, door)
    if locked(lock, LOCK_EX):
        _begin(kept, plan)
        return kept
    if wanted["mode"] == "create":
        reason = "it runs already in another step of this job on this node"
        raise refusal(reason, "leave ':create' out to join it", wanted)
    return _await(kept, plan)


def _begin(kept: KeptOnNode, plan: NodePlan) -> None:
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
    for door in _doors(kept.directory):
        os.unlink(door)
    _note_start(kept)
    records = {"image": image, "name": wanted["name"], "made": made_of(plan), "boot": boot}
    for name, text in records.items():
        kept.records.write(name, text)


def _image_of(plan: NodePlan) -> str:
    """Return the images of a plan as a record has them."""
    return ", ".join(plan.image_paths)


def _note_start(kept: KeptOnNode) -> None:
    """Record when the engine begins to write into the container, for `ce save`."""
    number = 0
    while os.path.exists(f"{kept.directory}/{STARTED}.{number}"):
        number += 1
    kept.records.write(f"{STARTED}.{number}", "")
    kept.begun = [f"{kept.directory}/{BEGUN}.{number}"]


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _forget(kept: KeptOnNode) -> None:
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


def _await(kept: KeptOnNode, plan: NodePlan) -> KeptOnNode:
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
    shared = [name for name in plan.unshare if name not in running.unshared]
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


def _visit(kept: KeptOnNode, deadline: float) -> Running | None:
    """Return the container that a guard hands over at the first open door; None if all are shut."""
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


def _handed_over(visitor: socket, kept: KeptOnNode) -> Running:
    """Return the container of a guard's answer (spank_plugin/guard/guard.h).

    Raise OSError for any other answer.
    """
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


def _doors(directory: str) -> Iterator[str]:
    for name in sorted(os.listdir(directory)):
        if name.startswith(_DOOR):
            yield f"{directory}/{name}"
