"""Write a running container's files, or only what was written in it, as a tar archive.

The files come from three directories of the session: the images, what was written above them, and
both together. What the engine itself has written before the container began is left out, and so
are files and directories that exist only as mount points.

Only within the session's namespaces all three are visible without the container's mounts. A child
process enters them, because setns(2) refuses a process with threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from container_engine.base.errors import CeError
from container_engine.base.files import is_own
from container_engine.base.mounts import remove_tree
from container_engine.images.pack import tar_header
from container_engine.images.pack.tar_header import Entry, Xattrs
from container_engine.images.pack.tar_stream import Out
from container_engine.images.store import lease
from container_engine.node.container.description import BEGUN, STARTED
from container_engine.node.inside.tasks import ContainerFiles

_CHARACTER_DEVICE = b"3"
_OWN, _OPAQUE = b"user.overlay.", b"user.overlay.opaque"
_PIECE = 1 << 20
_BLOCK = 512
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Roots(NamedTuple):
    """Descriptors of directories: the images, what was written, and what the container shows."""

    lower: int
    upper: int
    merged: int


class Selection(NamedTuple):
    """Rules for what a saved image leaves out.

    `starts` are the times, from and to, since 1970 in ns, in which the engine wrote.
    `places` are the mount points of the container and the directories above them, without a slash
    in front. `lines` are lines that the engine has added to a file, by its path.
    """

    starts: Sequence[tuple[int, int]]
    places: Collection[bytes] = ()
    lines: Mapping[bytes, bytes] = {}  # never changed


class _Here(NamedTuple):
    """Descriptors of one directory in each of the trees, -1 where there is none."""

    path: bytes
    lower: int
    upper: int
    merged: int

    def at(self, name: bytes) -> bytes:
        return self.path + b"/" + name if self.path else name

    def below(self, name: bytes) -> _Here:
        return _Here(
            self.at(name), *(_open(fd, name) for fd in (self.lower, self.upper, self.merged))
        )

    def close(self) -> None:
        for fd in (self.lower, self.upper, self.merged):
            if fd >= 0:
                os.close(fd)


def write(roots: Roots, selection: Selection, out: Out, *, difference: bool) -> None:
    """Write the archive. A file that changes meanwhile keeps the size that it had when opened.

    With `difference`, write only what was written in the container, with overlayfs' marks of what
    was removed. Raise OSError.
    """
    archive = _Archive(selection, out, difference=difference)
    archive.directory(_Here(b"", *map(os.dup, roots)))
    out.write(tar_header.END)


class _Archive:
    def __init__(self, selection: Selection, out: Out, *, difference: bool) -> None:
        self._selection, self._out, self._is_difference = selection, out, difference
        self._links: dict[tuple[int, int], bytes] = {}

    def directory(self, here: _Here) -> None:
        try:
            for name in _names(here.upper if self._is_difference else here.merged):
                self._entry(here, name)
            if not self._is_difference:
                self._restore_hidden(here)
        finally:
            here.close()

    def _entry(self, here: _Here, name: bytes) -> None:
        path = here.at(name)
        own, below = _status(here.upper, name), _status(here.lower, name)
        if own is not None and below is None and self._is_void(here, name, path):
            return
        source = here.upper if self._is_difference else here.merged
        if own is not None and self._is_engines(own):
            if self._is_difference or below is None:
                return
            source = here.lower
        found = _status(source, name)
        if found is None:
            return  # removed meanwhile
        line = self._selection.lines.get(path)
        if own is not None and line is not None and source != here.lower:
            self._without_line(here, name, path, line)
        elif stat.S_ISDIR(found.st_mode):
            self._add_directory(here, name, found)
        else:
            self._add(source, name, path, found)

    def _restore_hidden(self, here: _Here) -> None:
        """Add the files of the image that the engine has hidden."""
        for name in _names(here.upper):
            own = _status(here.upper, name)
            if own is not None and _is_whiteout(own) and self._is_engines(own):
                found = _status(here.lower, name)
                if found is not None and not stat.S_ISDIR(found.st_mode):
                    self._add(here.lower, name, here.at(name), found)

    def _is_engines(self, status: os.stat_result) -> bool:
        return not stat.S_ISDIR(status.st_mode) and self._is_of_start(status)

    def _is_of_start(self, status: os.stat_result) -> bool:
        # overlayfs has one whiteout for all that is removed, and changes its time at the next
        # mount; the engine removes files in the first start only
        starts = self._selection.starts[: 1 if _is_whiteout(status) else None]
        return any(began <= status.st_ctime_ns <= ended for began, ended in starts)

    def _is_void(self, parent: _Here, name: bytes, path: bytes) -> bool:
        """Check whether an entry that no image has is only the engine's, or a mount point."""
        status = _status(parent.upper, name)
        if status is None:
            return True
        is_early = self._is_of_start(status)
        if not stat.S_ISDIR(status.st_mode):
            is_empty = stat.S_ISREG(status.st_mode) and status.st_size == 0
            return is_early or (is_empty and path in self._selection.places)
        here = parent._replace(lower=-1, merged=-1).below(name)
        try:
            names = _names(here.upper)
            if not names:
                return is_early or path in self._selection.places
            return all(self._is_void(here, name, path + b"/" + name) for name in names)
        finally:
            here.close()

    def _add_directory(self, parent: _Here, name: bytes, status: os.stat_result) -> None:
        here = parent.below(name)
        source = here.upper if self._is_difference else here.merged
        if source < 0:
            here.close()
            return  # removed, or replaced by a file, meanwhile
        entry = self._head(here.path, tar_header.DIRECTORY, status)
        self._out.write(tar_header.header(entry._replace(xattrs=self._xattrs(source))))
        self.directory(here)

    def _add(self, source: int, name: bytes, path: bytes, status: os.stat_result) -> None:
        mode = status.st_mode
        if stat.S_ISREG(mode):
            self._add_file(source, name, path, status)
        elif stat.S_ISLNK(mode):
            try:
                link = os.readlink(name, dir_fd=source)
            except OSError:
                return  # replaced meanwhile
            self._write(self._head(path, tar_header.SYMLINK, status)._replace(link=link))
        elif stat.S_ISFIFO(mode):
            self._write(self._head(path, tar_header.FIFO, status))
        elif self._is_difference and _is_whiteout(status):
            self._write(self._head(path, _CHARACTER_DEVICE, status))

    def _add_file(self, source: int, name: bytes, path: bytes, status: os.stat_result) -> None:
        identity = (status.st_dev, status.st_ino)
        first = self._links.get(identity)
        if first is not None:
            self._write(self._head(path, tar_header.HARD_LINK, status)._replace(link=first))
            return
        try:
            fd = os.open(name, _FILE, dir_fd=source)
        except FileNotFoundError:
            return  # removed meanwhile
        with open(fd, "rb", buffering=0) as file:
            now = os.fstat(fd)
            if not stat.S_ISREG(now.st_mode):
                return
            if status.st_nlink > 1:
                self._links[identity] = path
            entry = self._head(path, tar_header.FILE, now)
            self._write(entry._replace(size=now.st_size, xattrs=self._xattrs(fd)))
            self._content(file.read, now.st_size)

    def _content(self, read: Callable[[int], bytes | None], size: int) -> None:
        left = size
        while left:
            piece = read(min(left, _PIECE))
            if not piece:
                break
            self._out.write(piece)
            left -= len(piece)
        # a file that became shorter is padded: its size precedes its content
        left += -size % _BLOCK
        while left:
            self._out.write(bytes(min(left, _PIECE)))
            left -= min(left, _PIECE)

    def _without_line(self, here: _Here, name: bytes, path: bytes, line: bytes) -> None:
        """Add a file without the engine's line, unless nothing else was written."""
        source = here.upper if self._is_difference else here.merged
        text, before = _content(source, name), _content(here.lower, name)
        status = _status(source, name)
        if text is None or status is None:
            return
        kept = b"".join(one for one in text.splitlines(keepends=True) if one.rstrip(b"\n") != line)
        same = kept.rstrip(b"\n") == (before or b"").rstrip(b"\n")
        if same and (self._is_difference or before is None):
            return
        kept = before if same and before is not None else kept
        self._write(self._head(path, tar_header.FILE, status)._replace(size=len(kept)))
        self._out.write(kept + bytes(-len(kept) % _BLOCK))

    def _head(self, path: bytes, kind: bytes, status: os.stat_result) -> Entry:
        mtime = min(max(int(status.st_mtime), 0), tar_header.MAX_TIME)
        return Entry(path, kind, stat.S_IMODE(status.st_mode), mtime, 0, b"")

    def _write(self, entry: Entry) -> None:
        self._out.write(tar_header.header(entry))

    def _xattrs(self, fd: int) -> Xattrs:
        """Return the attributes that users may set, and overlayfs' own in a difference."""
        found: list[tuple[bytes, bytes]] = []
        try:
            names: Sequence[str] = os.listxattr(fd)
        except OSError:
            return ()
        for text in names:
            name = os.fsencode(text)
            is_mark = self._is_difference and name == _OPAQUE
            if is_mark or (name.startswith(b"user.") and not name.startswith(_OWN)):
                found.append((name, os.getxattr(fd, name)))
        return tuple(found)


def _names(directory: int) -> list[bytes]:
    if directory < 0:
        return []
    return sorted(map(os.fsencode, os.listdir(directory)))


def _open(directory: int, name: bytes) -> int:
    if directory < 0:
        return -1
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except OSError:
        return -1


def _status(directory: int, name: bytes) -> os.stat_result | None:
    if directory < 0:
        return None
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None


def _content(directory: int, name: bytes) -> bytes | None:
    if directory < 0:
        return None
    try:
        with open(os.open(name, _FILE, dir_fd=directory), "rb") as file:
            return file.read()
    except OSError:
        return None


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _RECURSIVE, _PRIVATE = 1, 2, 4, 1 << 14, 1 << 18
# open_tree(2) has the same number on all machines; without AT_RECURSIVE, what is mounted below the
# directory is left out
_OPEN_TREE, _HERE, _CLONE = 428, -100, 1
_BUFFER = 1 << 20
_LONGEST = 4096
_NEVER = 1 << 63


def write_session(files: ContainerFiles, out: IO[bytes], *, difference: bool) -> None:
    """Write the session's files to `out` as a tar archive. Raise CeError.

    With `difference`, write only what was written in the container.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os._exit(_in_child(files, out.fileno(), writer, difference=difference))
    os.close(writer)
    with open(reader, "rb") as pipe:
        why = pipe.read(_LONGEST).decode(errors="replace")
    os.waitpid(child, 0)
    if why:
        raise CeError(f"cannot read the container's files: {why}")


def _in_child(files: ContainerFiles, out: int, errors: int, *, difference: bool) -> int:
    try:
        selection = _enter(files)
        with open(out, "wb", buffering=_BUFFER, closefd=False) as archive:
            write(_roots(files), selection, archive, difference=difference)
    except BrokenPipeError:
        return 1  # the program that packs has ended, and says why
    except BaseException as error:  # noqa: BLE001  # nothing may reach the parent's code
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        os.write(errors, (what or type(error).__name__).encode(errors="replace")[:_LONGEST])
        return 1
    return 0


def _enter(files: ContainerFiles) -> Selection:
    namespaces = [
        os.open(f"/proc/{files.guard}/ns/{name}", os.O_RDONLY) for name in ("user", "mnt")
    ]
    libc = ctypes.CDLL(None, use_errno=True)
    for namespace in namespaces:
        _check(libc.setns(namespace, 0))
    # mounts that are made from here on disappear with this process
    _check(libc.unshare(_NEW_MOUNTS))
    _check(libc.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None))
    os.chdir(files.directory)
    return Selection(_starts(files), files.places, files.lines)


def _starts(files: ContainerFiles) -> list[tuple[int, int]]:
    """Return the periods in which the engine itself wrote: from and to, in ns since 1970.

    Each start of a job container leaves two files with the same number.
    """
    if not files.kept:
        return [(0, os.stat(BEGUN).st_ctime_ns)]
    names = (name.partition(".") for name in os.listdir(files.kept))
    numbers = sorted(int(number) for first, dot, number in names if first == STARTED and dot)
    begins = [os.stat(f"{files.kept}/{STARTED}.{number}").st_ctime_ns for number in numbers]
    # after a failed start, nothing was written until the next one
    ends = [
        _ctime(f"{files.kept}/{BEGUN}.{number}") or later
        for number, later in zip(numbers, [*begins[1:], _NEVER], strict=True)
    ]
    return list(zip(begins, ends, strict=True))


def _ctime(path: str) -> int:
    try:
        return os.stat(path).st_ctime_ns
    except FileNotFoundError:
        return 0


def _roots(files: ContainerFiles) -> Roots:
    libc = ctypes.CDLL(None, use_errno=True)
    if len(files.images) > 1:
        names = [f"image{number or ''}" for number in reversed(range(len(files.images)))]
        options = f"lowerdir={':'.join(names)},userxattr".encode()
        flags = _READ_ONLY | _NO_SETUID | _NO_DEVICES
        _check(libc.mount(b"overlay", b"image", b"overlay", flags, options))
    alone = _check(libc.syscall(_OPEN_TREE, _HERE, b"root", _CLONE))
    flags = os.O_RDONLY | os.O_DIRECTORY
    return Roots(
        os.open("image", flags),
        os.open(f"{files.kept or '.'}/changes", flags),
        os.open(".", flags, dir_fd=alone),
    )


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


_PREFIX = ".ce-save-"


@contextlib.contextmanager
def draft_directory(parent: str, limit_s: float) -> Iterator[str]:
    """Create a directory below `parent`, and remove it afterwards. Raise OSError.

    First remove those that killed processes of this user have left. A process on another host
    cannot be seen: its directory is removed at twice the age of `limit_s` seconds, the longest that
    one is used.
    """
    _remove_old(parent, 2 * limit_s)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as work:
        lease.note_owner(work, lease.this_process(""))
        yield work


def _remove_old(parent: str, age_s: float) -> None:
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        with contextlib.suppress(OSError):  # it has ended meanwhile, or something is mounted there
            status = os.lstat(path)
            is_draft = name.startswith(_PREFIX) and stat.S_ISDIR(status.st_mode)
            if is_draft and is_own(status) and lease.is_abandoned(path, age_s):
                remove_tree(path)
