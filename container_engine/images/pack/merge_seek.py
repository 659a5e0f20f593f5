"""Merge the layers of an image into one tar stream, without unpacking any of them to disk.

Each layer is read twice: once to find what is visible in the end, once for the contents. Owners
become root; device nodes and extended attributes that only root may set are left out. They would
have no effect in a container, which has a single user.
"""

from __future__ import annotations

import gzip
import math
import os
import shutil
import tarfile
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from container_engine import process
from container_engine.errors import UserError
from container_engine.images.pack import tar_stream
from container_engine.images.pack.merge_rules import Tree
from container_engine.images.pack.tar_stream import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from container_engine.images.budget import Account
    from container_engine.images.pack.merge_rules import Paths, Visible

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_MODE, _BLOCK, _PIECE = 0o7777, 512, 1 << 20
_LAYER_TIMEOUT_S = 24 * 3600  # the actual limit is that of the import as a whole
_DAMAGED = (tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError)


def write_merged(
    layers: Sequence[str], out: IO[bytes], env: Mapping[str, str], account: Account
) -> None:
    """Merge the layer files, lowest first, and write them as a tar archive to `out`.

    `env` is the environment for zstd. Raise UserError for a damaged layer, or for more than
    `account` allows.
    """
    visible = _visible(layers, env, account)
    for path, directory in visible.directories:
        entry = Entry(path, tar_stream.DIRECTORY, directory.mode, directory.mtime, 0, b"")
        out.write(tar_stream.header(entry._replace(xattrs=directory.xattrs)))
    for layer, contents in zip(layers, visible.contents, strict=True):
        if contents:
            _copy(layer, contents, out, env)
    out.write(tar_stream.END)


def _visible(layers: Sequence[str], env: Mapping[str, str], account: Account) -> Visible:
    tree = Tree()
    for layer in layers:
        tree.next_layer()
        with _members(layer, env) as (_archive, members):
            for index, member in enumerate(members):
                account.enter()
                account.take(member.size)
                _add(tree, index, member)
    return tree.visible()


def _add(tree: Tree, index: int, member: tarfile.TarInfo) -> None:
    name, link = _bytes(member.name), _bytes(member.linkname)
    if member.isdir():
        tree.add_directory(name, member.mode & _MODE, _time(member), _xattrs(member))
    elif member.islnk():
        tree.add_hard_link(name, link)
    elif member.issym():
        tree.add_content(name, index, link)
    elif member.isreg() or member.isfifo():
        tree.add_content(name, index)


def _copy(layer: str, contents: Paths, out: IO[bytes], env: Mapping[str, str]) -> None:
    """Write the visible members of one layer."""
    with _members(layer, env) as (archive, members):
        for index, member in enumerate(members):
            paths = contents.get(index)
            if not paths:
                continue
            entry = _entry(paths[0], member)
            out.write(tar_stream.header(entry))
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None:
                shutil.copyfileobj(content, out, _PIECE)
                out.write(bytes(-member.size % _BLOCK))
            for other in paths[1:]:
                shared = Entry(other, tar_stream.HARD_LINK, 0, 0, 0, entry.name)
                out.write(tar_stream.header(shared))


def _entry(path: bytes, member: tarfile.TarInfo) -> Entry:
    kind = tar_stream.FILE if member.isreg() else member.type
    size = member.size if member.isreg() else 0  # a sparse file is read with its holes
    link = _bytes(member.linkname) if member.issym() else b""
    mode = member.mode & _MODE
    return Entry(path, kind, mode, _time(member), size, link, _xattrs(member))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _time(member: tarfile.TarInfo) -> int:
    if not math.isfinite(member.mtime):
        raise tarfile.HeaderError("a time that is not a number")
    return min(max(int(member.mtime), 0), tar_stream.MAX_TIME)


def _xattrs(member: tarfile.TarInfo) -> tar_stream.Xattrs:
    if not member.pax_headers:
        return ()
    return tar_stream.kept_xattrs(
        {_bytes(key): _bytes(value) for key, value in member.pax_headers.items()}
    )


@contextmanager
def _members(
    layer: str, env: Mapping[str, str]
) -> Iterator[tuple[tarfile.TarFile, Iterator[tarfile.TarInfo]]]:
    """Yield the archive in a layer file, as a stream: use a member before asking for the next."""
    with open(layer, "rb") as blob:
        magic = os.pread(blob.fileno(), 4, 0)  # keeps the position, which a child may inherit
        try:
            with _plain_stream(blob, magic, env) as stream:
                archive = tarfile.open(  # noqa: SIM115
                    fileobj=stream, mode="r|", bufsize=1 << 20, encoding="utf-8"
                )
                yield archive, _each(archive)
                while stream.read(1 << 20):
                    pass  # so that a decompressor reaches the end and can report damage
        except _DAMAGED as error:
            raise UserError(f"layer {layer}: damaged: {error}", see="image-damaged") from None


@contextmanager
def _plain_stream(blob: IO[bytes], magic: bytes, env: Mapping[str, str]) -> Iterator[IO[bytes]]:
    if magic.startswith(_GZIP):
        with gzip.open(blob) as stream:
            yield stream  # type: ignore[misc]
    elif magic == _ZSTD:
        with process.reading(["zstd", "-dcq"], env, _LAYER_TIMEOUT_S, blob) as stream:
            yield stream
    else:
        yield blob


def _each(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]  # or it would keep all members
        yield member
