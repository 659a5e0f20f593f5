"""What a store has, and how to make room in it."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING, NamedTuple

from container_engine.images import config
from container_engine.images.store import Ref, read_ref

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_IMAGE = re.compile(r"(sha256)-([0-9a-f]{64})-(\w+)\.sqsh")
SUM_SUFFIX = ".sha256"
MANIFEST_SUFFIX = ".manifest"  # as the registry has it: the image's name is its digest
USED_SUFFIX = (
    ".used"  # its time is that of the last launch, for file systems without times of access
)


class Item(NamedTuple):
    """An image of a store. `used` is as exact as its file system keeps times of access."""

    path: str
    digest: str
    arch: str
    names: tuple[str, ...]
    size: int
    created: float
    used: float


class Named(NamedTuple):
    """A ref with its file, and the architecture it is for."""

    path: str
    arch: str
    ref: Ref | None


def refs(root: str) -> Iterator[Named]:
    for path in files(f"{root}/refs"):
        if path.endswith(".json"):
            yield Named(path, path.removesuffix(".json").rpartition("-")[2], read_ref(path))


def items(root: str) -> list[Item]:
    """The images of the store `root`, the one used last first."""
    names: dict[tuple[str, str], list[str]] = {}
    for named in refs(root):
        if named.ref is not None:
            names.setdefault((named.ref.digest, named.arch), []).append(named.ref.name)
    found = []
    for path in files(f"{root}/images"):
        match = _IMAGE.fullmatch(os.path.basename(path))
        if match is None:
            continue
        digest, arch = f"{match[1]}:{match[2]}", match[3]
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path)
            used = max(status.st_atime, status.st_mtime)
            known = tuple(sorted(names.get((digest, arch), ())))
            found.append(Item(path, digest, arch, known, status.st_size, status.st_mtime, used))
    return sorted(found, key=lambda item: -item.used)


def files(directory: str) -> list[str]:
    """The files in a directory, which may be missing."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.path for entry in entries if entry.is_file(follow_symlinks=False))
    except FileNotFoundError:
        return []


def remove(root: str, item: Item) -> None:
    """Names first, so that none is left that leads nowhere. Jobs that run keep an open file."""
    for named in refs(root):
        if named.ref is not None and (named.ref.digest, named.arch) == (item.digest, item.arch):
            _unlink(named.path)
    for path in (item.path, *belongings(item.path)):
        _unlink(path)


def belongings(path: str) -> tuple[str, ...]:
    """The files that lie beside an image of a store, if they are there."""
    suffixes = (SUM_SUFFIX, MANIFEST_SUFFIX, USED_SUFFIX)
    return (config.beside(path), *(path + suffix for suffix in suffixes))


def forget(root: str, name: str, arch: str) -> None:
    for named in refs(root):
        if named.ref is not None and (named.ref.name, named.arch) == (name, arch):
            _unlink(named.path)


def superfluous(
    found: Sequence[Item], unused_s: float | None, limit: int | None, now: float
) -> list[Item]:
    """Those not used for `unused_s` seconds, and the oldest beyond `limit` bytes together."""
    chosen, kept = [], 0
    for item in found:  # the one used last first
        too_old = unused_s is not None and now - item.used > unused_s
        too_large = limit is not None and kept + item.size > limit
        if too_old or too_large:
            chosen.append(item)
        else:
            kept += item.size
    return chosen


def old_blobs(root: str, unused_s: float, now: float) -> list[str]:
    """Layers that no import has used for so long."""
    found = []
    for path in files(f"{root}/blobs/sha256"):
        with contextlib.suppress(FileNotFoundError):
            if now - os.stat(path).st_mtime > unused_s:
                found.append(path)
    return found


def keep_alive(root: str) -> int:
    """Marks all images as used now, for file systems that purge what nobody reads."""
    now = time.time()
    for item in items(root):
        for path in (item.path, config.beside(item.path), item.path + SUM_SUFFIX):
            with contextlib.suppress(OSError):
                os.utime(path, (now, os.stat(path).st_mtime))
    return len(items(root))


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
