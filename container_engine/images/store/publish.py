"""Install a finished file as an image, and keep the files that belong beside it in a store."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.files import publish
from container_engine.images import identity, image_config
from container_engine.images.files_beside import small

MANIFEST_SUFFIX = ".manifest"  # as in the registry: the image's name is its digest
USED_SUFFIX = ".used"  # the time of the import, and of the last launch that used the image
NAMES_SUFFIX = (
    ".names"  # the names under which it was fetched; nodes read it (node/start/site_rules)
)
SUFFIXES = (".json", identity.SUFFIX, MANIFEST_SUFFIX, USED_SUFFIX, NAMES_SUFFIX)
_MOST_NAMES = 64
_STAMP_S = 6 * 3600  # launches record the use of an image no more often
_REPAIR = "ce store repair removes it (--force: even while jobs use it); then import it again"


class Use(NamedTuple):
    """The times of an image's import and last use, in seconds since 1970."""

    imported: float
    used: float


def install(made: str, configuration: bytes, path: str, *, replaces: bool = True) -> bool:
    """Rename the file `made` to the image `path`; return False if it exists and must not change.

    The configuration is written first, so that no image is ever without one. Raise OSError.
    """
    digest = _finished(made)
    if not replaces and os.path.lexists(path):
        return False
    publish(image_config.beside(path), configuration)
    if replaces:
        os.replace(made, path)
    elif not appear(made, path):
        return False
    with contextlib.suppress(OSError):  # the record only saves reading the file again
        identity.record(path, digest, configuration)
    return True


def install_stored(made: str, configuration: bytes, path: str, manifest: bytes) -> bool:
    """Install the file `made` as the image `path` of a store; return False if that exists.

    An image is never replaced, because jobs may have it mounted. The files beside it then stay,
    too, so that the checksum is the image's own. Raise OSError.
    """
    if os.path.lexists(path):
        return False
    digest = _finished(made)
    publish(image_config.beside(path), configuration)
    publish(path + MANIFEST_SUFFIX, manifest)
    identity.record(path, digest, configuration, made)
    note_use(path, Use(time.time(), time.time()))
    if appear(made, path):
        return True
    # another process was quicker: the checksum beside is ours, but the image is not
    identity.record(path, identity.computed(path), configuration)
    return False


def refuse_changed(name: str, path: str) -> None:
    """Raise UserError if the image `path`, which is not replaced, has changed since its import."""
    if identity.has_changed(path):
        why = f"the store has it, but the content of {path} has changed since its import"
        raise UserError(why, _REPAIR, "image-damaged", name=name)


def _finished(made: str) -> str:
    """Flush the file to disk and return its digest."""
    from concurrent.futures import ThreadPoolExecutor  # 10 ms that a plan need not wait for

    with open(made, "rb") as file, ThreadPoolExecutor(1) as aside:
        digest = aside.submit(identity.computed, made)
        os.fsync(file.fileno())
        return digest.result()


_HERE, _NO_REPLACE = -100, 1  # AT_FDCWD, RENAME_NOREPLACE
# errors of file systems without hard links
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


def appear(made: str, path: str) -> bool:
    """Rename the file `made` to `path` and return True, or return False if `path` exists.

    The file server decides. Without hard links renameat2(2) does the same. Where a file system has
    neither, `path` is looked for first; a process that makes it at that moment goes unnoticed.
    """
    try:
        os.link(made, path)
    except FileExistsError:
        # the file server may have made the link although its reply was lost
        return os.path.samefile(made, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _renamed(made, path)
    with contextlib.suppress(OSError):
        os.unlink(made)
    return True


def _renamed(made: str, path: str) -> bool:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    try:
        failed = libc.renameat2(_HERE, os.fsencode(made), _HERE, os.fsencode(path), _NO_REPLACE)
        number = ctypes.get_errno()
    except AttributeError:  # an old C library
        failed, number = -1, errno.ENOSYS
    if not failed:
        return True
    if number == errno.EEXIST or os.path.lexists(path):
        return False
    if number not in {errno.EINVAL, errno.ENOSYS}:
        raise OSError(number, os.strerror(number), made)
    os.replace(made, path)
    return True


def note_use(path: str, use: Use) -> None:
    """Record the times in `use` beside the image `path`. Raise OSError."""
    publish(path + USED_SUFFIX, f"{use.imported:.0f}\n{use.used:.0f}\n".encode())


def note_name(path: str, name: str, judge: str = "") -> None:
    """Record beside the image `path` that it was fetched as `name`.

    `judge` is the hash of the signature policy that has accepted it, "" for none. Raise OSError.
    """
    known = names(path)
    if known.get(name) == judge:
        return
    lines = [f"{one} {by or '-'}\n" for one, by in {**known, name: judge}.items()]
    publish(path + NAMES_SUFFIX, "".join(lines[-_MOST_NAMES:]).encode())


def names(path: str) -> dict[str, str]:
    """Return the recorded names of the image `path`, each with its `judge` (see `note_name`).

    As on nodes, they are trusted only if the image's owner or root wrote them. Otherwise adding a
    name would rewrite somebody else's names as this user's.
    """
    try:
        if os.lstat(path + NAMES_SUFFIX).st_uid not in {0, os.stat(path).st_uid}:
            return {}
        lines = small(path + NAMES_SUFFIX).decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split(" ") for line in lines)
    return {pair[0]: pair[1].replace("-", "") for pair in pairs if len(pair) == 2}


def use(path: str) -> Use | None:
    """Return the recorded times of the image `path`, or None if they cannot be read."""
    try:
        imported, used = map(float, small(path + USED_SUFFIX).split())
    except (OSError, ValueError):
        return None
    return Use(imported, used)


def mark_used(path: str, now: float) -> None:
    """Record that a launch uses an image. Errors are ignored: the store may be another user's.

    The times of the image's files are renewed, too, so that a purge of old files spares them.
    """
    noted = use(path)
    if noted is not None and now - noted.used > _STAMP_S:
        with contextlib.suppress(OSError):
            note_use(path, noted._replace(used=now))
        renew(path, now)


def renew(path: str, now: float) -> None:
    """Renew the times of an image and of the files beside it."""
    digest = identity.known_digest(path)
    renew_files((path, *belongings(path)), now)
    if digest:
        identity.note(path, digest)  # the content has not changed, only its time


def renew_files(paths: Iterable[str], now: float) -> None:
    """Renew the times of files, except those that this user may not change."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.utime(path, (now, now))


def belongings(path: str) -> tuple[str, ...]:
    """Return the paths of the files beside an image of a store, existing or not."""
    return tuple(path + suffix for suffix in SUFFIXES)
