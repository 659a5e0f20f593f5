"""Two file systems: the node's, and the image's, which is only looked at from outside.

A process that enters an image (chroot) runs what lies there as soon as anything is looked up by a
path that it did not think of: a module, a codec, the source line of a traceback. So nobody enters
it: files of the image are opened one name after the other, from the descriptor of the directory.
"""

from __future__ import annotations

import errno
import os
import stat

from container_engine.node.libraries.links import Links

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_MOST_LINKS = 40
_MOST_OPEN = 128


class Tree:
    """The node's files. Every path is absolute."""

    def __init__(self) -> None:
        self._links = Links()

    def open(self, path: str) -> int:
        """Open for reading; never waits for a FIFO. Raises OSError."""
        return os.open(path, _READ)

    def real(self, path: str) -> str:
        """Return the path without links, as os.path.realpath."""
        return self._links.real(path)

    def readlink(self, path: str) -> str:
        """Raise OSError for what is no link."""
        return os.readlink(path)

    def exists(self, path: str) -> bool:
        """Tell whether there is anything, also a link that leads nowhere."""
        return os.path.lexists(path)

    def names(self, path: str) -> list[str]:
        """List a directory. Raises OSError."""
        return os.listdir(path)

    def content(self, path: str, most: int) -> bytes:
        """Read a regular file of at most so many bytes; b"" for anything else."""
        try:
            fd = self.open(path)
        except OSError:
            return b""
        try:
            status = os.fstat(fd)
            is_file = stat.S_ISREG(status.st_mode) and status.st_size <= most
            return os.pread(fd, status.st_size, 0) if is_file else b""
        except OSError:
            return b""
        finally:
            os.close(fd)


class ImageTree(Tree):
    """The files below a directory, with links that mean what they mean in the container.

    No path leads out, whatever the links are: each name is opened by itself, from a directory that
    was opened like that, and a link is only ever read.
    """

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = os.open(root, _DIRECTORY & ~os.O_NOFOLLOW)
        # by their path, which has no links; "" is the root
        self._open: dict[str, int] = {}
        # what has been looked at: where it leads, or None for what is no link
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

    def exists(self, path: str) -> bool:
        directory, _slash, name = path.rpartition("/")
        if name in ("", ".", ".."):
            directory, name = path, "."
        try:
            os.lstat(name, dir_fd=self._directory(self._resolve(directory)))
        except (OSError, ValueError):
            return False
        return True

    def names(self, path: str) -> list[str]:
        fd = self._at(self._resolve(path), _READ | os.O_DIRECTORY)
        try:
            return os.listdir(fd)
        finally:
            os.close(fd)

    def replace(self, path: str, content: bytes) -> None:
        """Put a new file in place of the image's, which is not copied first. Raises OSError."""
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

    def remove(self, path: str) -> None:
        """Remove the file that a path leads to, behind all links. Raises OSError."""
        directory, _slash, name = self._resolve(path).rpartition("/")
        try:
            os.unlink(name, dir_fd=self._directory(directory))
        except OSError as error:
            raise _named(error, f"{directory}/{name}") from None

    def _end(self, path: str) -> str:
        """Return where a path ends: at its last link, where that leads in a circle."""
        try:
            return self._resolve(path)
        except OSError:
            directory, _slash, name = path.rpartition("/")
            return f"{self._resolve(directory)}/{name}"

    def _make(self, directory: str) -> None:
        """Make a directory, and those above it, where they are missing."""
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
        """Return the path without links, "" for the root, as far as there is anything."""
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
        """Return where a link leads; None for what is no link, or not there."""
        path = f"{directory}/{name}"
        if path not in self._targets:
            try:
                target = os.readlink(name, dir_fd=self._directory(directory))
            except (OSError, ValueError):
                target = None
            self._targets[path] = target
        return self._targets[path]

    def _directory(self, path: str) -> int:
        """Return a descriptor of a directory whose path has no links. Raises OSError."""
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
        """Open what has no links in its path."""
        directory, _slash, name = path.rpartition("/")
        return self._from(self._directory(directory), name or ".", flags | os.O_NOFOLLOW, path)

    @staticmethod
    def _from(directory: int, name: str, flags: int, path: str) -> int:
        try:
            return os.open(name, flags, 0o644, dir_fd=directory)
        except ValueError:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path) from None
        except OSError as error:
            raise _named(error, path) from None


def _named(error: OSError, path: str) -> OSError:
    return OSError(error.errno, error.strerror, path)
