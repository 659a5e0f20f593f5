"""What becomes an image, and the files that lie beside it in a store."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from typing import NamedTuple

from container_engine.images import config
from container_engine.images.store import identity
from container_engine.images.store.beside import small
from container_engine.images.store.files import publish

MANIFEST_SUFFIX = ".manifest"  # as the registry has it: the image's name is its digest
USED_SUFFIX = ".used"  # when it was imported, and when a launch last used it
SUFFIXES = (".json", identity.SUFFIX, MANIFEST_SUFFIX, USED_SUFFIX)


class Use(NamedTuple):
    """In seconds since 1970."""

    imported: float
    used: float


def install(made: str, configuration: bytes, path: str) -> None:
    """The file `made` becomes the image `path`, in place of what was there.

    The configuration first: an image is never there without it. Raises OSError.
    """
    digest = _finished(made)
    publish(config.beside(path), configuration)
    os.replace(made, path)
    with contextlib.suppress(OSError):  # it only spares others the reading
        identity.record(path, digest, configuration)


def install_stored(made: str, configuration: bytes, path: str, manifest: bytes) -> bool:
    """Make the image `path` of a store of the file `made`; False if it is there already.

    An image is never replaced: jobs may have it mounted. Nothing beside it changes then, so that
    its checksum is its own. Raises OSError.
    """
    if os.path.lexists(path):
        return False
    digest = _finished(made)
    publish(config.beside(path), configuration)
    publish(path + MANIFEST_SUFFIX, manifest)
    identity.record(path, digest, configuration, made)
    note_use(path, Use(time.time(), time.time()))
    if appear(made, path):
        return True
    # somebody came between: the checksum beside is ours, the image is theirs
    identity.record(path, identity.computed(path), configuration)
    return False


def _finished(made: str) -> str:
    """Return the digest of what was made, once it is on the disk."""
    from concurrent.futures import ThreadPoolExecutor  # 10 ms that a plan need not wait for

    with open(made, "rb") as file, ThreadPoolExecutor(1) as aside:
        digest = aside.submit(identity.computed, made)
        os.fsync(file.fileno())
        return digest.result()


# what file systems without hard links answer
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


def appear(made: str, path: str) -> bool:
    """Give the file `made` the name `path` if nothing has it: the file server decides."""
    try:
        os.link(made, path)
    except FileExistsError:
        # a file server may do its work and lose the answer
        return os.path.samefile(made, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.replace(made, path)
        return True
    with contextlib.suppress(OSError):
        os.unlink(made)
    return True


def note_use(path: str, use: Use) -> None:
    """Raises OSError."""
    publish(path + USED_SUFFIX, f"{use.imported:.0f}\n{use.used:.0f}\n".encode())


def use(path: str) -> Use | None:
    """What was noted of the image `path`; None where that cannot be read."""
    try:
        imported, used = map(float, small(path + USED_SUFFIX).split())
    except (OSError, ValueError):
        return None
    return Use(imported, used)


def belongings(path: str) -> tuple[str, ...]:
    """The files that lie beside an image of a store, if they are there."""
    return tuple(path + suffix for suffix in SUFFIXES)
