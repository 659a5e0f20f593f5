"""Write files atomically, make temporary directories, and read digests and ages."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import hashlib

_PIECE = 1 << 20
# the caller's umask, as long as another one is in force
_given: list[int] = []


def keep_others_out() -> None:
    """Let nothing that this process makes be writable for everybody, whatever the umask is."""
    given = os.umask(stat.S_IWOTH)
    os.umask(given | stat.S_IWOTH)
    _given[:] = [given]


def with_given_umask() -> None:
    """Return to the caller's umask, for programs of the user's that this process becomes."""
    if _given:
        os.umask(_given.pop())


def publish(path: str, content: bytes) -> None:
    """Replace the file `path` atomically; its directory is created. Raise OSError."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    replace(path, content)


def replace(path: str, content: bytes, mode: int | None = None) -> None:
    """Replace the file `path` atomically; it gets `mode`, if any, whatever the umask is.

    Raise OSError.
    """
    # an unpredictable name, because others may write where a group shares its images
    draft = f"{path}.{os.urandom(8).hex()}"
    try:
        with created(draft) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def created(path: str) -> BinaryIO:
    """Create and open the file `path`. Raise OSError if anything is there, even a symlink."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o666), "wb")


@contextlib.contextmanager
def fresh_directory(path: str) -> Iterator[str]:
    """Create an empty directory and remove it afterwards.

    Anything that a killed process left there is removed first.
    """
    import shutil

    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path, mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def sha256(path: str) -> str:
    """Return the digest of a file in hexadecimal."""
    import hashlib

    digest = hashlib.sha256()
    sum_of(path, digest)
    return digest.hexdigest()


def sum_of(
    path: str, digest: hashlib._Hash, is_stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Add the content of a file to a sum; return whether that ended before `is_stopped` is true."""
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_PIECE):
            if is_stopped():
                return False
            digest.update(data)
    return True


def files_of(directory: str) -> list[str]:
    """Return the sorted paths of the regular files in a directory, which may be missing."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.path for entry in entries if entry.is_file(follow_symlinks=False))
    except FileNotFoundError:
        return []


def now_at(directory: str) -> float:
    """Return the time by the clock of the file server of `directory`, else by the local clock."""
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.write(file.fileno(), b"\n")
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()


def is_older(path: str, seconds: float, now: float) -> bool:
    """Check whether a file was last written more than `seconds` ago; False if it is gone.

    `now` comes from `now_at`.
    """
    try:
        return now - os.stat(path).st_mtime > seconds
    except OSError:
        return False
