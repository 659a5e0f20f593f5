"""The layers of an image as one tar stream, without unpacking any of them to disk.

Each layer is read twice: once to learn what is visible in the end, once for the contents. Owners
become root, device nodes and extended attributes are left out: neither means anything in a
container whose only user is the one who started it.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from container_engine import process
from container_engine.errors import UserError
from container_engine.images.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from container_engine.images.tree import Paths, Visible

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_LAYER_TIMEOUT_S = 24 * 3600  # the import as a whole has the true limit
_DAMAGED = (tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError)


def write_merged(layers: Sequence[str], out: IO[bytes], env: Mapping[str, str]) -> None:
    """Writes what the layer files, lowest first, make together as a tar archive to `out`.

    `env` is the environment for zstd. Raises UserError for a layer that is damaged.
    """
    visible = _visible(layers, env)
    with tarfile.open(
        fileobj=out, mode="w|", format=tarfile.GNU_FORMAT, encoding="utf-8", bufsize=1 << 20
    ) as archive:
        for path, directory in visible.directories:
            archive.addfile(_directory(path, directory.mode, directory.mtime))
        for layer, contents in zip(layers, visible.contents, strict=True):
            if contents:
                _copy(layer, contents, archive, env)


def _visible(layers: Sequence[str], env: Mapping[str, str]) -> Visible:
    tree = Tree()
    for layer in layers:
        tree.next_layer()
        with _members(layer, env) as (_archive, members):
            for index, member in enumerate(members):
                _add(tree, index, member)
    return tree.visible()


def _add(tree: Tree, index: int, member: tarfile.TarInfo) -> None:
    if member.isdir():
        tree.add_directory(member.name, member.mode, member.mtime)
    elif member.islnk():
        tree.add_hard_link(member.name, member.linkname)
    elif member.issym():
        tree.add_content(member.name, index, member.linkname)
    elif member.isreg() or member.isfifo():
        tree.add_content(member.name, index)


def _copy(layer: str, contents: Paths, out: tarfile.TarFile, env: Mapping[str, str]) -> None:
    """Writes the visible members of one layer."""
    with _members(layer, env) as (archive, members):
        for index, member in enumerate(members):
            paths = contents.get(index)
            if not paths:
                continue
            content = archive.extractfile(member) if member.isreg() else None
            out.addfile(_plain(paths[0], member), content)
            for other in paths[1:]:
                out.addfile(_link(other, paths[0]))


def _directory(path: str, mode: int, mtime: float) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.type, info.mode, info.mtime = tarfile.DIRTYPE, mode, int(mtime)
    return info


def _link(path: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.type, info.linkname = tarfile.LNKTYPE, target
    return info


def _plain(path: str, member: tarfile.TarInfo) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.mode, info.mtime = member.mode, int(member.mtime)
    if member.isreg():
        info.size = member.size  # a sparse file is read with its holes
    else:
        info.type, info.linkname = member.type, member.linkname
    return info


@contextmanager
def _members(
    layer: str, env: Mapping[str, str]
) -> Iterator[tuple[tarfile.TarFile, Iterator[tarfile.TarInfo]]]:
    """The archive in a layer file, as a stream: use a member before you ask for the next."""
    with open(layer, "rb") as blob:
        magic = os.pread(blob.fileno(), 4, 0)  # the position stays, a child may inherit it
        try:
            with _plain_stream(blob, magic, env) as stream:
                archive = tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 20)  # noqa: SIM115
                yield archive, _each(archive)
                while stream.read(1 << 20):
                    pass  # so that a decompressor comes to its end and can say what it found
        except _DAMAGED as error:
            raise UserError(f"layer {layer}: damaged: {error}") from None


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
        archive.members = []  # type: ignore[attr-defined]  # or it would keep all it has seen
        yield member
