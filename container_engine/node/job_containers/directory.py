"""Keep containers of jobs on a node: their directories, and what they were made from.

Each is a directory below one of the user's; later steps compare its records with what they want.
"""

from __future__ import annotations

import os
from fcntl import LOCK_EX, LOCK_NB, flock

from container_engine.base.errors import LaunchError
from container_engine.base.files import is_own_directory, read_regular, write_private
from container_engine.base.mounts import remove_tree
from container_engine.node.plan_json import parse_json, to_json
from container_engine.node.slurm_step import node_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import KeptContainer


ROOM = "make room on the node's disk, or ask the site for another kept_dir"
_NOT_MINE = "if it belongs to another user, that user or the site must remove it"
_SEE = "container-name"
_NAMELESS = ".removed."


def directory_of(wanted: KeptContainer, job: str, node: Mapping[str, str]) -> str:
    """Return the container's directory, which is private and created if necessary.

    Raise LaunchError.
    """
    place, name = wanted["directory"], _of_job(job, node_name(node))
    path = _of_user(place)
    try:
        path = _existing(place, name) or f"{_taken(path, node)}/{name}"
        _private(path)
        path = f"{path}/{wanted['key']}"
        _private(path)
    except OSError as error:
        hint = _NOT_MINE if isinstance(error, PermissionError) else ROOM
        reason = f"cannot use {error.filename or path}: {error.strerror}"
        raise refusal(reason, hint, wanted) from None
    return path


def _of_user(directory: str) -> str:
    """Return the directory of the user's job containers, as programs/epilog.c does."""
    return f"{directory}/ce-kept-{os.geteuid()}"


def _existing(directory: str, name: str) -> str:
    """Return the job's directory, whichever name the first step used; "" if there is none."""
    path = _of_user(directory)
    if is_own_directory(f"{path}/{name}") and is_own_directory(path):
        return f"{path}/{name}"
    prefix = f"{os.path.basename(path)}."
    others = os.listdir(directory) if os.path.isdir(directory) else []
    for one in (f"{directory}/{other}" for other in sorted(others) if other.startswith(prefix)):
        if is_own_directory(one) and is_own_directory(f"{one}/{name}"):
            return f"{one}/{name}"
    return ""


def _taken(path: str, node: Mapping[str, str]) -> str:
    """Create and return the user's directory, with a suffix if another user has taken the name.

    Other users cannot guess the suffix, and all steps of the job compute the same one. Raise
    OSError.
    """
    try:
        _private(path)
    except _NotPrivateError:
        from hashlib import sha256

        from container_engine.node import job_secret

        own = job_secret.of_job(node, node["HOME"], "") if node.get("HOME") else ""
        if not own:
            raise
        path = f"{path}.{sha256(f'kept {own}'.encode()).hexdigest()[:16]}"
        _private(path)
    return path


def _of_job(job: str, node: str) -> str:
    return f"{job}.{node}"


class _NotPrivateError(PermissionError):
    """The error for a path that exists but is not a private directory of this user."""


def _private(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not is_own_directory(path):
            raise _NotPrivateError(
                1, "it is not a directory that only you can write", path
            ) from None


def names_here(directory: str, job: str, node: str) -> dict[str, str]:
    """Return the names of the job's job containers on this node, with their directories."""
    place = _existing(directory, _of_job(job, node))
    found = {}
    for key in sorted(os.listdir(place)) if place else ():
        if _NAMELESS in key:
            continue
        try:
            name = read_regular(f"{place}/{key}/name").decode()
        except (OSError, ValueError):
            continue
        if name:
            found[name] = f"{place}/{key}"
    return found


def remove(directory: str, *, force: bool = False) -> bool:
    """Remove a job container. Return False if it runs and stays. Raise OSError.

    With `force`, a running one loses its name; its steps go on, and the job's end removes it.
    """
    lock = os.open(f"{directory}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not locked(lock, LOCK_EX):
            if force:
                os.rename(directory, f"{directory}{_NAMELESS}{os.urandom(3).hex()}")
            return force
        remove_tree(directory)
        return True
    finally:
        os.close(lock)


def locked(lock: int, how: int) -> bool:
    """Take the lock, LOCK_EX or LOCK_SH; return False if another step holds it."""
    try:
        flock(lock, how | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def subject(wanted: KeptContainer) -> str:
    """Return what messages call the container."""
    return f"container '{wanted['name']}'" if wanted["name"] else "the job's container"


def refusal(reason: str, hint: str, wanted: KeptContainer) -> LaunchError:
    """Return the error of a step that cannot use this container."""
    name = wanted["name"]
    return LaunchError(
        reason,
        hint or None,
        _SEE,
        kind="container" if name else "the job's container",
        name=name or None,
    )


# parts of a plan that a running container cannot change, and the key that names an entry
_MADE_OF = {"mounts": "target", "devices": "name", "startup": "line"}
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
            raise refusal(reason, ROOM, self._wanted) from None

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


def _parsed(made: str) -> dict[str, Any]:
    """Return the parts in a record, none of one that is damaged: only a warning depends on it."""
    try:
        found = parse_json(made)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _without_origin(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "from"}
