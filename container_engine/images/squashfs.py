"""SquashFS files: check that one is complete, by its first bytes and its size, and look into it."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from container_engine.base import process
from container_engine.base.errors import UserError
from container_engine.base.text_layout import nearest

_SUPERBLOCK = struct.Struct("<4s IIII HHHH HH QQ")
_SUPERBLOCK_SIZE = 96  # including the positions of tables, which are not read here
_MAGIC = b"hsqs"
_VERSION = 4
_COMPRESSORS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}
_HEAD = 512
_MAX_LISTED = 10_000  # names among which a similar one is searched

_CONVERTED = (
    "ce import -o IMAGE.sqsh FILE makes one of an archive of images, or of a root file system"
)
# (offset, bytes) -> the kind of a file that is not an image, and a hint
_OTHERS: tuple[tuple[int, bytes, str, str | None], ...] = (
    (0, b"sqsh", "a big-endian SquashFS, made on another kind of machine", "make it again"),
    (0, b"version https://git-lfs", "a git-lfs pointer, not the file itself", "git lfs pull"),
    (257, b"ustar", "a tar archive", _CONVERTED),
    (0, b"\x1f\x8b", "a gzip file", _CONVERTED),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file", _CONVERTED),
    (0, b"\xfd7zXZ", "an xz file", None),
    (0, b"PK\x03\x04", "a zip archive", None),
    (32, b"SIF_MAGIC", "an Apptainer or Singularity image (SIF)", "import it from its registry"),
    (0, b"QFI\xfb", "a disk image of a virtual machine (qcow)", None),
    (0, b"\x7fELF", "a program (ELF)", None),
    (0, b"#!", "a script", None),
    (0, b"<", "a web page or another text in XML", "was the download redirected to a login?"),
    (0, b"{", "a JSON text", None),
)


class Superblock(NamedTuple):
    """The fields of a superblock that are used here.

    `bytes_used` counts from the start of the file, without padding.
    """

    bytes_used: int
    block_size: int
    compressor: str


_NO_IMAGE = "image-not-squashfs"


def check(path: str) -> Superblock:
    """Return the superblock of the complete SquashFS file `path`.

    Raise UserError with one line that names the problem: no such file, not permitted, a directory,
    another kind of file, cut short.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        close = similar(path) if isinstance(error, FileNotFoundError) else None
        hint = f"did you mean '{close}'?" if close else None
        raise UserError(process.reason(error), hint, _see(error), name=path) from None
    try:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise UserError("a directory, not a SquashFS file", see=_NO_IMAGE, name=path)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISBLK(status.st_mode)):
            raise UserError("not a regular file", see=_NO_IMAGE, name=path)
        head = os.read(fd, _HEAD)
        size = os.lseek(fd, 0, os.SEEK_END)
    except OSError as error:
        raise UserError(process.reason(error), see=_see(error), name=path) from None
    finally:
        os.close(fd)
    return parse(path, head, size)


def parse(path: str, head: bytes, size: int) -> Superblock:
    """Parse the superblock in the first bytes of a file of `size` bytes. Raise as `check` does."""
    if not head:
        raise UserError("the file is empty", see="image-damaged", name=path)
    if not head.startswith(_MAGIC):
        kind, hint = _recognise(head)
        raise UserError(f"not a SquashFS file but {kind}", hint, _NO_IMAGE, name=path)
    if len(head) < _SUPERBLOCK_SIZE:
        raise _cut_short(path, size, f"at least {_SUPERBLOCK_SIZE}")
    fields = _SUPERBLOCK.unpack_from(head)
    block_size, compression, major, bytes_used = fields[3], fields[5], fields[9], fields[12]
    if major != _VERSION:
        message = f"SquashFS version {major}, only version 4 can be mounted"
        raise UserError(message, see=_NO_IMAGE, name=path)
    if bytes_used > size:
        raise _cut_short(path, size, str(bytes_used))
    name = _COMPRESSORS.get(compression, f"unknown ({compression})")
    return Superblock(bytes_used, block_size, name)


def similar(path: str) -> str | None:
    """Return the path of a file beside `path` with a similar name, or None."""
    directory, name = os.path.split(path)
    try:
        found = os.listdir(directory)[:_MAX_LISTED]
    except OSError:
        return None
    close = nearest(name, (other for other in found if other != name))
    return os.path.join(directory, close) if close else None


def unsquashfs(
    words: Sequence[str], env: Mapping[str, str], timeout_s: float, most: int | None = None
) -> bytes:
    """Run `unsquashfs WORDS…` and return its stdout. Raise the errors of process.output.

    It is confined, because the file may be anybody's. It runs with one thread: with one for each
    processor of a large host, it would exceed the limit on its memory.
    """
    from container_engine.images.confine.cage import Cage  # only for images without a description

    argv = ["unsquashfs", "-processors", "1", *words]
    return process.output(argv, env, timeout_s, most, Cage().close)


def _see(error: OSError) -> str:
    absent = error.errno in {errno.ENOENT, errno.ENOTDIR}
    return "image-file-not-found" if absent else "image-file-unreadable"


def _cut_short(path: str, size: int, wanted: str) -> UserError:
    return UserError(
        f"cut short, it has {size} bytes of {wanted}",
        "copy or download it again",
        "image-damaged",
        name=path,
    )


def _recognise(head: bytes) -> tuple[str, str | None]:
    for offset, magic, kind, hint in _OTHERS:
        if head[offset:].startswith(magic):
            return kind, hint
    if not head.strip(b"\0"):
        return "a file of zeros", "was it copied completely?"
    return "something unknown", None
