"""Two file systems: the node's, and the image's, which is only read from outside.

A process that enters an image (chroot) runs the image's code as soon as it looks anything up by an
unforeseen path: a module, a codec, the source line of a traceback. So no process enters it: files
of the image are opened one path component after the other, from the directory's descriptor.
"""

from __future__ import annotations

import errno
import os
import stat

from container_engine.base.answers import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")


_LONGEST_CHAIN = 20


class Links:
    """The resolved symlinks of the file system, which must not change while this is used."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def real(self, path: str) -> str:
        """Return the absolute `path` with its symlinks resolved, as os.path.realpath does."""
        if path not in self._known:
            self._known[path] = self._look(path)
        return self._known[path]

    def _look(self, path: str) -> str:
        directory, _slash, name = path.rpartition("/")
        if not directory or name in ("", ".", ".."):
            return os.path.realpath(path)
        if directory not in self._known:
            self._known[directory] = os.path.realpath(directory)
        start = self._known[directory].rstrip("/")
        for _ in range(_LONGEST_CHAIN):
            try:
                name = os.readlink(f"{start}/{name}")
            except OSError:
                return f"{start}/{name}"
            # most symlinks lead to a file beside them, libx.so.1 to libx.so.1.2
            if "/" in name or name in (".", ".."):
                break
        return os.path.realpath(path)


_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_MOST_LINKS = 40
_MOST_OPEN = 128
# errors that have their cause in the file or its path, and will therefore occur again
_OF_FILES = frozenset(
    [
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP),
        *(errno.EINVAL, errno.ENAMETOOLONG, errno.ENXIO),
    ]
)


class Tree:
    """The node's files. Every path is absolute.

    `asked` has the questions (base/answers.py) about all that its answers depend on, with the
    states before them. `is_certain` becomes False with the first answer that also depends on
    something else, such as a lack of memory.
    """

    def __init__(self) -> None:
        self._links = Links()
        self.asked: dict[str, str] = {}
        self.is_certain = True

    def _ask(self, path: str) -> None:
        for question in (f"f{path}", f"r{path}"):
            if question in self.asked:
                continue
            try:
                self.asked[question] = state(question, self._links.real)
            except ValueError:  # not an absolute path
                self.is_certain = False

    def judge(self, error: Exception) -> None:
        """Clear `is_certain` for an error that does not depend on the file: a lack of memory."""
        self.is_certain &= isinstance(error, OSError) and error.errno in _OF_FILES

    def _tried(self, call: Callable[..., T], *args: Any, **more: Any) -> T:  # noqa: ANN401
        try:
            return call(*args, **more)
        except OSError as error:
            self.judge(error)
            raise

    def open(self, path: str) -> int:
        """Open for reading; never wait for a FIFO. Raise OSError."""
        self._ask(path)
        return self._tried(os.open, path, _READ)

    def real(self, path: str) -> str:
        """Return the path with all symlinks resolved, as os.path.realpath does."""
        self._ask(path)
        return self._links.real(path)

    def readlink(self, path: str) -> str:
        """Return a symlink's target. Raise OSError if the path is not a symlink."""
        self._ask(path)
        return os.readlink(path)

    def has(self, path: str) -> bool:
        """Check whether the path exists; a dangling symlink does."""
        self._ask(path)
        return os.path.lexists(path)

    def names(self, path: str) -> list[str]:
        """List a directory. Raise OSError."""
        self._ask(path)
        return self._tried(os.listdir, path)

    def content(self, path: str, most: int) -> bytes:
        """Read a regular file of at most `most` bytes; return b"" for anything else."""
        try:
            fd = self.open(path)
        except OSError:
            return b""
        try:
            status = os.fstat(fd)
            is_file = stat.S_ISREG(status.st_mode) and status.st_size <= most
            return self._tried(os.pread, fd, status.st_size, 0) if is_file else b""
        except OSError:
            return b""
        finally:
            os.close(fd)


class ImageTree(Tree):
    """The files below a directory, with symlinks resolved as in the container.

    No path leads out, whatever the symlinks are: each component is opened by itself, from a
    directory that was opened in the same way, and a symlink is only ever read.
    """

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = os.open(root, _DIRECTORY & ~os.O_NOFOLLOW)
        # descriptors of directories below the root, by their path without symlinks
        self._open: dict[str, int] = {}
        # targets of all paths looked at; None if not a symlink
        self._targets: dict[str, str | None] = {}

    def open(self, path: str) -> int:
        return self._at(self._resolve(path), _READ)

    def real(self, path: str) -> str:
        try:
            return self._resolve(path) or "/"
        except OSError:
            return path

    def readlink(self, path: str) -> str:
        directory, _slash, name = path.rpartition("/")
        target = self._target(self._resolve(directory), name)
        if target is None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return target

    def has(self, path: str) -> bool:
        directory, _slash, name = path.rpartition("/")
        if name in ("", ".", ".."):
            directory, name = path, "."
        try:
            self._tried(os.lstat, name, dir_fd=self._directory(self._resolve(directory)))
        except (OSError, ValueError):
            return False
        return True

    def names(self, path: str) -> list[str]:
        fd = self._at(self._resolve(path), _READ | os.O_DIRECTORY)
        try:
            return self._tried(os.listdir, fd)
        finally:
            os.close(fd)

    def replace(self, path: str, content: bytes) -> str:
        """Put a new file in the place of the image's, and return the path to which symlinks led.

        The old file is not copied into the upper layer first. Raise OSError.
        """
        directory, _slash, name = self._end(path).rpartition("/")
        self._make(directory)
        new = f"{directory}/{name}.ce-new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC
        with open(self._at(new, flags), "wb") as file:
            file.write(content)
        place = self._directory(directory)
        try:
            os.replace(f"{name}.ce-new", name, src_dir_fd=place, dst_dir_fd=place)
        except OSError as error:
            raise _named(error, f"{directory}/{name}") from None
        return f"{directory}/{name}"

    def remove(self, path: str) -> str:
        """Remove the file to which a path leads through all symlinks, and return its real path.

        Raise OSError.
        """
        directory, _slash, name = self._resolve(path).rpartition("/")
        try:
            os.unlink(name, dir_fd=self._directory(directory))
        except OSError as error:
            raise _named(error, f"{directory}/{name}") from None
        return f"{directory}/{name}"

    def _end(self, path: str) -> str:
        """Return the path with symlinks resolved; if they form a loop, its last one stays."""
        try:
            return self._resolve(path)
        except OSError:
            directory, _slash, name = path.rpartition("/")
            return f"{self._resolve(directory)}/{name}"

    def _make(self, directory: str) -> None:
        """Create a directory, and the missing ones above it. Raise OSError."""
        if not directory or self._is_directory(directory):
            return
        above, _slash, name = directory.rpartition("/")
        self._make(above)
        try:
            os.mkdir(name, 0o755, dir_fd=self._directory(above))
        except OSError as error:
            raise _named(error, directory) from None

    def _is_directory(self, path: str) -> bool:
        try:
            self._directory(path)
        except OSError:
            return False
        return True

    def _resolve(self, path: str) -> str:
        """Return the path with its symlinks resolved as far as it exists; "" for the root.

        Raise OSError if they form a loop.
        """
        here = ""
        links = 0
        pending = path.split("/")[::-1]
        while pending:
            name = pending.pop()
            if name in ("", "."):
                continue
            if name == "..":
                here = here.rpartition("/")[0]
                continue
            target = self._target(here, name)
            if target is None:
                here = f"{here}/{name}"
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                here = ""
            pending += target.split("/")[::-1]
        return here

    def _target(self, directory: str, name: str) -> str | None:
        """Return a symlink's target, or None if it is not a symlink or does not exist."""
        path = f"{directory}/{name}"
        if path not in self._targets:
            try:
                target = self._tried(os.readlink, name, dir_fd=self._directory(directory))
            except (OSError, ValueError):
                target = None
            self._targets[path] = target
        return self._targets[path]

    def _directory(self, path: str) -> int:
        """Return a descriptor of a directory whose path has no symlinks. Raise OSError."""
        if not path:
            return self._root
        if path not in self._open:
            above, _slash, name = path.rpartition("/")
            parent = self._directory(above)
            fd = self._from(parent, name, _DIRECTORY, path)
            if len(self._open) >= _MOST_OPEN:
                self._forget()
            self._open[path] = fd
        return self._open[path]

    def _forget(self) -> None:
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def _at(self, path: str, flags: int) -> int:
        """Return a descriptor of a path that has no symlinks. Raise OSError."""
        directory, _slash, name = path.rpartition("/")
        return self._from(self._directory(directory), name or ".", flags | os.O_NOFOLLOW, path)

    def _from(self, directory: int, name: str, flags: int, path: str) -> int:
        try:
            return self._tried(os.open, name, flags, 0o644, dir_fd=directory)
        except ValueError:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path) from None
        except OSError as error:
            raise _named(error, path) from None


def _named(error: OSError, path: str) -> OSError:
    return OSError(error.errno, error.strerror, path)
