"""Sign the node's files that a decision depends on, to see later whether they are unchanged.

An aspect of a file is a letter and a path; the letter says which changes matter. "f": the content
of the file or directory. "p": which file is there and how it is mounted, for sources of mounts.
"e": whether the path exists and its type. "d": which device it is and whether this user may open
it. "o": who owns it and may change it. "r": where the path leads through symlinks. The program
ce-node computes the same signatures (spank_plugin/node/start_memo.c).
"""

from __future__ import annotations

import os
import stat
import time

from container_engine.base import private_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_MOUNT_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC
# The kernel does not update the times of these directories when their content changes, or each
# process has one of its own.
_OF_KERNEL = ("/proc/", "/sys/", "/dev/pts/", "/dev/fd/")


def signature(aspect: str, real: Callable[[str], str] = os.path.realpath) -> str:
    """Return a text that changes when the file changes in this aspect.

    Nothing at the path has a signature, too. Raise ValueError unless the path is absolute and
    without a NUL.
    """
    kind, path = aspect[:1], aspect[1:]
    if not path.startswith("/") or "\0" in path:
        raise ValueError("not an absolute path")
    try:
        found = os.stat(path)
        if kind == "f":
            return (
                f"{found.st_dev} {found.st_ino} {found.st_mode:o} {found.st_size}"
                f" {found.st_mtime_ns} {found.st_ctime_ns}"
            )
        if kind == "r":
            return real(path)
        if kind == "o":
            return f"{found.st_uid} {found.st_mode:o}"
        if kind == "d":
            may = [os.access(path, right) for right in (os.R_OK, os.W_OK)]
            return (
                f"{found.st_dev} {found.st_ino} {found.st_mode:o} {found.st_rdev}"
                f" {may[0]:d} {may[1]:d}"
            )
        flags = os.statvfs(path).f_flag & _MOUNT_FLAGS
    except OSError as error:
        return f"errno {error.errno}{_of_link(path)}"
    what = f"{stat.S_IFMT(found.st_mode):o} {flags}"
    return f"{found.st_dev} {found.st_ino} {what}" if kind == "p" else what


def _of_link(path: str) -> str:
    """Return the identity of a dangling symlink, "" if there is nothing at the path."""
    try:
        found = os.lstat(path)
    except OSError:
        return ""
    return f" {found.st_dev} {found.st_ino} {found.st_ctime_ns}"


def are_settled(aspects: Iterable[str]) -> bool:
    """Check that no file has changed so recently that another change might go unnoticed."""
    now = time.time_ns()
    return not any(
        aspect[0] == "f" and private_files.is_young(aspect[1:], now) for aspect in aspects
    )


def are_unchanged(
    aspects: Mapping[str, str], real: Callable[[str], str] = os.path.realpath
) -> bool:
    """Check that all signatures are still the same. Raise ValueError as `signature` does."""
    return all(signature(aspect, real) == found for aspect, found in aspects.items())


def is_of_kernel(path: str, *more: str) -> bool:
    """Check whether files at the path come and go unseen, or differ between processes.

    `more` are further directories where they do, each with a final slash.
    """
    ends = (os.path.normpath(path), os.path.realpath(path))
    return any(f"{end}/".startswith((*_OF_KERNEL, *more)) for end in ends)
