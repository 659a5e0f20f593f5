"""The directories of job containers on a node, each below one of the user's."""

from __future__ import annotations

import os
from fcntl import LOCK_EX, LOCK_NB, flock

from container_engine.base.files import is_own_directory, read_regular
from container_engine.base.mounts import remove_tree
from container_engine.node.slurm_step import node_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


# set in the environment of a step that must not make the container that it names
MUST_EXIST = "CE_CONTAINER_MUST_EXIST"
_NAMELESS = ".removed."


def directory_of(place: str, key: str, job: str, node: Mapping[str, str]) -> str:
    """Return the directory of the container `key` below the site's `place`.

    It is private, and created if necessary. Raise OSError.
    """
    name = _of_job(job, node_name(node))
    path = _existing(place, name) or f"{_taken(_of_user(place), node)}/{name}"
    _private(path)
    path = f"{path}/{key}"
    _private(path)
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
