"""Check that a file system has room for a result before work is done, and explain its errors."""

from __future__ import annotations

import contextlib
import errno
import os

from container_engine.base.errors import UserError
from container_engine.base.mounts import mounts
from container_engine.base.process import reason
from container_engine.base.text_layout import size_text

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
FULL = (errno.ENOSPC, errno.EDQUOT)
_HINT = "ce gc --layers makes room, and ce gc --unused DAYS more; ce images shows what is there"


def free(directory: str) -> int | None:
    """Return the bytes that the caller may still write, None if the file system reports none."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize if status.f_blocks else None


def check(directory: str, wanted: int) -> None:
    """Raise UserError if `wanted` bytes are certainly more than the caller may write."""
    left = free(directory)
    needs = f"the import needs about {size_text(wanted)}"
    if left is not None and wanted > left:
        message = f"{size_text(left)} are free, {needs}"
        raise UserError(message, _HINT, "store-full", name=directory)
    try:
        _reserve(directory, wanted)
    except OSError as error:
        if error.errno in FULL:
            raise UserError(
                f"{reason(error)}: {needs}", _HINT, "store-full", name=directory
            ) from None


def unusable(directory: str, error: OSError) -> UserError:
    """Return the user's form of an error while something was written below `directory`."""
    where = os.fspath(error.filename) if error.filename else directory
    see = "store-full" if error.errno in FULL else "store-unusable"
    return UserError(reason(error), see=see, name=where)


def without_room(directory: str, error: OSError) -> UserError | None:
    """Return the user's form of an error if a temporary directory has no room, else None."""
    if error.errno not in FULL:
        return None
    hint = "TMPDIR=DIR names a directory with more room"
    return UserError(reason(error), hint, "store-full", name=directory)


def refuse_full(path: str, error: OSError) -> None:
    """Raise UserError if `error` says that there is no room for `path`, which is not of a store."""
    if error.errno in FULL:
        from container_engine.base import shortage

        raise UserError(
            reason(error), shortage.hint(error.errno), shortage.CODE, name=error.filename or path
        ) from None


def _reserve(directory: str, size: int) -> None:
    """Reserve space for a moment, because file systems report a quota only when it is exceeded.

    This uses only the kernel's call: where it is not supported, the C library would write to every
    block. In memory nothing is reserved, because every block would have to be cleared.
    """
    import ctypes  # 15 ms that only imports of images need

    if size <= 0 or _is_in_memory(directory):
        return
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    from tempfile import TemporaryFile

    with TemporaryFile(dir=directory) as file:
        if fallocate(file.fileno(), _KEEP_SIZE, 0, size) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def _is_in_memory(directory: str) -> bool:
    device = os.stat(directory).st_dev
    here = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        kinds = (mount.kind for mount in mounts() if mount.device == here)
        return next(kinds, "") in ("tmpfs", "ramfs")
    return False
