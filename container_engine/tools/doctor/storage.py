"""Checks that the image stores can be used, and whether old files may be purged there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from container_engine.base.errors import UserError
from container_engine.base.process import reason
from container_engine.images import free_space
from container_engine.images.store import lease
from container_engine.tools.doctor.finding import Finding, failed, ok, warning

_CHECK = "image store"
_ROOM = 20 << 30  # bytes: a large image and its layers
_LOCK_LIMIT_S = 10
_GIB = 1 << 30


def look(root: str, env: Mapping[str, str]) -> Iterator[Finding]:
    """Check the user's own store `root`."""
    yield _usable(root)
    yield _purges(root, env)


def look_at_sites(stores: Iterable[str]) -> Iterator[Finding]:
    """Check that this user can read the site's stores. Root can read them whatever their modes."""
    for path in stores:
        check = "site store"
        if not os.path.isdir(path):
            remedy = "is its file system mounted here? if it is, correct image_stores"
            yield failed(check, f"{path} is not there", remedy)
        elif not os.access(path, os.R_OK | os.X_OK):
            yield failed(check, f"{path} cannot be read", f"chmod a+rx {path}")
        elif not os.listdir(path):
            text = f"{path} is empty"
            yield failed(
                check, text, "is its file system mounted here? if it is, import an image into it"
            )
        else:
            yield ok(check, path)


def _usable(root: str) -> Finding:
    place = root
    while not os.path.exists(place):
        place = os.path.dirname(place) or "/"
    if not os.access(place, os.W_OK | os.X_OK):
        text = f"{root}: {place} cannot be written"
        return failed(_CHECK, text, "set EDF_IMAGESTORE to a directory of yours that nodes share")
    if place == root and (problem := _lock_problem(root)):
        return failed(_CHECK, f"{root}: {problem}", "another file system may serve better")
    free = free_space.free(place)
    if free is not None and free < _ROOM:
        text = f"{root}: {free / _GIB:.1f} GiB free"
        return warning(_CHECK, text, "`ce gc` makes room; images need some GiB each")
    return ok(_CHECK, f"{root}{'' if place == root else ' (created when needed)'}")


def _lock_problem(root: str) -> str | None:
    """Take a lock as an import does; return the problem, or None."""
    name = os.path.join(root, "locks", f"doctor-{os.getpid()}")
    try:
        with lease.held(name, "ce doctor", _LOCK_LIMIT_S, lambda _holder, _s: None):
            return None
    except UserError as error:
        return error.message
    except OSError as error:
        return f"cannot be locked: {reason(error)}"


def _purges(root: str, env: Mapping[str, str]) -> Finding:
    scratch = env.get("SCRATCH")
    if scratch and (root + "/").startswith(scratch.rstrip("/") + "/"):
        remedy = "where old files are purged, run `ce gc --keep-alive` now and then"
        return warning("purges", f"the image store is below SCRATCH ({scratch})", remedy)
    return ok("purges", "the image store is not below SCRATCH")
