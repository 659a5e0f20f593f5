"""Reads the bytes of an EDF, within limits, and refuses everything that is not a text file."""

from __future__ import annotations

import errno
import os
import stat

from container_engine.base.errors import UserError
from container_engine.base.ownership import owner_name

MAX_BYTES = 1 << 20
_SQUASHFS = b"hsqs"
_NAMED = os.O_PATH | os.O_CLOEXEC


class SourceError(UserError):
    """A file that cannot be used as an EDF; `line` is 0 if no line is at fault."""

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        line: int = 0,
        see: str = "environment-unreadable",
        where: str = "",
    ) -> None:
        super().__init__(message, hint, see, where=where)
        self.line = line


def read_source(path: str, directory: str | None = None) -> str:
    """Return the text of a file, its line endings as "\\n". Raise SourceError.

    This is the only place where an EDF is read. It never blocks (a FIFO is refused), and it stops
    reading at the limit. A byte order mark, which some editors write, is dropped. `directory` is
    where a search found the file; None if its name was a path.
    """
    data = _read_bytes(path, directory)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError("is UTF-16, not UTF-8", "save it as UTF-8", 1, "edf-syntax")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise SourceError(
            "contains a NUL byte, so it is not a text file", line=line, see="edf-syntax"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{data[error.start]:02x}"
        raise SourceError(
            f"is not valid UTF-8: {found}", "save it as UTF-8", line, "edf-syntax"
        ) from error
    return text.replace("\r\n", "\n")


def _read_bytes(path: str, directory: str | None) -> bytes:
    try:
        descriptor = _open(path, directory)
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot be read: {reason(error)}", remedy(error)) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "a pipe or a device"
            raise SourceError(f"is {kind}, not an EDF", "use a regular file")
        data = _read_all(descriptor)
    except OSError as error:
        raise SourceError(f"cannot be read: {reason(error)}", remedy(error, path)) from error
    finally:
        os.close(descriptor)
    if data.startswith(_SQUASHFS):
        hint = "'ce init NAME --image FILE' writes an environment for it"
        raise SourceError("is an image, not an EDF", hint)
    if len(data) > MAX_BYTES:
        message = f"is larger than {MAX_BYTES >> 20} MiB, the limit for an EDF"
        raise SourceError(message, see="edf-too-large")
    return data


def _open(path: str, directory: str | None) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    if directory is None:
        return os.open(path, flags)
    found = open_trusted(path, directory)
    try:
        return os.open(f"/proc/self/fd/{found}", flags)
    finally:
        os.close(found)


def open_trusted(path: str, directory: str) -> int:
    """Return an O_PATH descriptor of `path`, a file below `directory`, if its owner is trusted.

    A user who puts a directory into the search path trusts its owner. In a directory that everybody
    may write, such as /tmp, only files of its owner, of this user and of root are accepted. The
    descriptor is that of the file that was checked, whatever is renamed meanwhile. Raise
    SourceError for another owner, and OSError.
    """
    place, above = directory, os.open(directory, _NAMED)
    try:
        for name in os.path.relpath(path, directory).split("/"):
            place = os.path.join(place, name)
            entry = os.open(name, _NAMED | os.O_NOFOLLOW, dir_fd=above)
            try:
                _check_owner(place, os.fstat(above), os.fstat(entry))
                below = _followed(entry, above)
            finally:
                os.close(entry)
            os.close(above)
            above = below
        return os.dup(above)
    finally:
        os.close(above)


def _check_owner(path: str, above: os.stat_result, entry: os.stat_result) -> None:
    is_anybodys = above.st_mode & stat.S_IWOTH
    if is_anybodys and entry.st_uid not in {above.st_uid, os.geteuid(), 0}:
        who = owner_name(entry.st_uid)
        message = f"owned by {who}, in a directory that everybody may write"
        hint = f"remove {os.path.dirname(path)} from EDF_PATH, or use the file's path"
        raise SourceError(message, hint, see="untrusted-file", where=path)


def _followed(entry: int, above: int) -> int:
    """Return a new descriptor of the entry or, if it is a symlink, of the file it leads to."""
    if not stat.S_ISLNK(os.fstat(entry).st_mode):
        return os.dup(entry)
    return os.open(os.readlink("", dir_fd=entry), _NAMED, dir_fd=above)


def _read_all(descriptor: int) -> bytes:
    chunks: list[bytes] = []
    left = MAX_BYTES + 1
    while left and (chunk := os.read(descriptor, left)):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def reason(error: OSError | ValueError) -> str:
    """Return the kernel's reason, beginning in lower case."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error)


def remedy(error: OSError | ValueError, path: str = "") -> str | None:
    """Return a hint, or None where that of the catalogue applies.

    If the file at `path` may not be read and is another user's, the hint names that user.
    """
    if isinstance(error, PermissionError):
        owner = _other_owner(path)
        return (
            f"ask {owner} for r on the file, and x on the directories above it" if owner else None
        )
    return _REMEDIES.get(error.errno or 0) if isinstance(error, OSError) else None


def _other_owner(path: str) -> str:
    """Return who owns the file, or the directory in which it cannot be seen; "" for the user."""
    while path:
        try:
            uid = os.stat(path).st_uid
        except OSError:
            path = os.path.dirname(path) if os.path.dirname(path) != path else ""
            continue
        return "" if uid == os.geteuid() else owner_name(uid)
    return ""


_BROKEN = "the file system reports an error there: try again, then ask its administrator"
_REMEDIES = {
    errno.ELOOP: "a symbolic link leads back to itself: ls -l shows where each one leads",
    errno.ENAMETOOLONG: "check the name: no file can have one so long",
    errno.EIO: _BROKEN,
    errno.ESTALE: _BROKEN,
}
