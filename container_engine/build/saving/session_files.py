"""Read the files of a running session from within its namespaces, in a child process.

Only there are the images, what was written in the container, and the overlay of both visible
without the container's mounts. Only a child enters, because setns(2) refuses a process with
threads.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Mapping
from typing import IO, NamedTuple

from container_engine.base.errors import CeError
from container_engine.build.saving import container_archive

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _RECURSIVE, _PRIVATE = 1, 2, 4, 1 << 14, 1 << 18
# open_tree(2) has the same number on all machines; without AT_RECURSIVE, what is mounted below the
# directory is left out
_OPEN_TREE, _HERE, _CLONE = 428, -100, 1
_BUFFER = 1 << 20
_LONGEST = 4096
_NEVER = 1 << 63


class Files(NamedTuple):
    """A session. All paths are those in its mount namespace.

    `guard` is the process id of its guard. `kept` is the directory for what is written if that
    outlives the session, else "". `begun` is a file that is made once the engine has written its
    own files. A `kept` directory has two files for each start, `started`.N, made before the engine
    writes, and `begun`.N. `images` is the number of the session's images. `places` and `lines` are
    as in `container_archive.Selection`.
    """

    guard: int
    directory: str
    kept: str
    started: str
    begun: str
    images: int
    places: Collection[bytes]
    lines: Mapping[bytes, bytes]


def write(files: Files, out: IO[bytes], *, difference: bool) -> None:
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


def _in_child(files: Files, out: int, errors: int, *, difference: bool) -> int:
    try:
        selection = _enter(files)
        with open(out, "wb", buffering=_BUFFER, closefd=False) as archive:
            container_archive.write(_roots(files), selection, archive, difference=difference)
    except BrokenPipeError:
        return 1  # the program that packs has ended, and says why
    except BaseException as error:  # noqa: BLE001  # nothing may reach the parent's code
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        os.write(errors, (what or type(error).__name__).encode(errors="replace")[:_LONGEST])
        return 1
    return 0


def _enter(files: Files) -> container_archive.Selection:
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
    return container_archive.Selection(_starts(files), files.places, files.lines)


def _starts(files: Files) -> list[tuple[int, int]]:
    """Return the periods in which the engine itself wrote: from and to, in ns since 1970.

    Each start of a kept container leaves two files with the same number.
    """
    if not files.kept:
        return [(0, os.stat(files.begun).st_ctime_ns)]
    names = (name.partition(".") for name in os.listdir(files.kept))
    numbers = sorted(int(number) for first, dot, number in names if first == files.started and dot)
    begins = [os.stat(f"{files.kept}/{files.started}.{number}").st_ctime_ns for number in numbers]
    # after a failed start, nothing was written until the next one
    ends = [
        _ctime(f"{files.kept}/{files.begun}.{number}") or later
        for number, later in zip(numbers, [*begins[1:], _NEVER], strict=True)
    ]
    return list(zip(begins, ends, strict=True))


def _ctime(path: str) -> int:
    try:
        return os.stat(path).st_ctime_ns
    except FileNotFoundError:
        return 0


def _roots(files: Files) -> container_archive.Roots:
    libc = ctypes.CDLL(None, use_errno=True)
    if files.images > 1:
        names = [f"image{number or ''}" for number in reversed(range(files.images))]
        options = f"lowerdir={':'.join(names)},userxattr".encode()
        flags = _READ_ONLY | _NO_SETUID | _NO_DEVICES
        _check(libc.mount(b"overlay", b"image", b"overlay", flags, options))
    alone = _check(libc.syscall(_OPEN_TREE, _HERE, b"root", _CLONE))
    flags = os.O_RDONLY | os.O_DIRECTORY
    return container_archive.Roots(
        os.open("image", flags),
        os.open(f"{files.kept or '.'}/changes", flags),
        os.open(".", flags, dir_fd=alone),
    )


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
