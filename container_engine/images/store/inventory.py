"""List the images of a store, and remove images to make room."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.files import files_of, is_older, now_at
from container_engine.base.text_layout import duration_text
from container_engine.images import image_config
from container_engine.images.digests import ALGORITHMS
from container_engine.images.files_beside import small
from container_engine.images.store import publish
from container_engine.images.store.publish import Use, belongings
from container_engine.images.store.store import CLOCKS_S, Ref, read_ref, ref_name

if TYPE_CHECKING:
    from container_engine.images.store.in_use import InUse

_IMAGE = re.compile(r"(sha256)-([0-9a-f]{64})-(\w+)\.sqsh")
_FRACTION = re.compile(r"\.[0-9]+")


class Item(NamedTuple):
    """An image of a store. Times are seconds since 1970.

    `created` is the time in its configuration, else that of the import. `used` is the time of the
    last launch, accurate to some hours, or a later access time if the file system records it.
    """

    path: str
    digest: str
    arch: str
    names: tuple[str, ...]
    size: int
    created: float
    imported: float
    used: float


class Named(NamedTuple):
    """A ref, its file and its architecture; `ref` is None if it is invalid or not trusted."""

    path: str
    arch: str
    ref: Ref | None


def refs(root: str) -> Iterator[Named]:
    for path in files_of(f"{root}/refs"):
        if path.endswith(".json"):
            yield Named(path, path.removesuffix(".json").rpartition("-")[2], _ref(path))


def _ref(path: str) -> Ref | None:
    """Return a ref; None if it is invalid or another user put it there."""
    try:
        return read_ref(path)
    except UserError:
        return None


def items(root: str) -> list[Item]:
    """Return the images of the store `root`, the most recently used first."""
    names: dict[tuple[str, str], list[str]] = {}
    for named in refs(root):
        if named.ref is not None:
            names.setdefault((named.ref.digest, named.arch), []).append(named.ref.name)
    found = []
    for path in files_of(f"{root}/images"):
        match = _IMAGE.fullmatch(os.path.basename(path))
        if match is None:
            continue
        digest, arch = f"{match[1]}:{match[2]}", match[3]
        known = tuple(sorted(names.get((digest, arch), ())))
        with contextlib.suppress(FileNotFoundError):
            found.append(_item(path, digest, arch, known))
    return sorted(found, key=lambda item: -item.used)


def _item(path: str, digest: str, arch: str, names: tuple[str, ...]) -> Item:
    status = os.stat(path)
    noted = publish.use(path) or Use(status.st_mtime, status.st_mtime)
    # `keep_alive`, which is not a use, sets both to the same time
    is_read = status.st_atime_ns != status.st_mtime_ns
    read = status.st_atime if is_read else 0
    imported = _credible(noted.imported, status.st_mtime)
    used = max(_credible(noted.used, noted.imported, status.st_mtime), _credible(read, 0))
    created = _created(image_config.beside(path)) or imported
    return Item(path, digest, arch, names, status.st_size, created, imported, used)


def _credible(*times: float) -> float:
    """Return the first of the times that is not in the future, else the present time."""
    now = time.time()
    return next((when for when in times if when < now + CLOCKS_S), now)


def _created(path: str) -> float | None:
    """Return the creation time in an OCI configuration, or None if there is none.

    Times close to 1970 come from reproducible builds.
    """
    try:
        text = str(json.loads(small(path))["created"])
        return datetime.fromisoformat(_FRACTION.sub("", text)).timestamp()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def remove(root: str, item: Item, used: InUse) -> str | None:
    """Remove an image with its names; if a job has begun to use it, return why it stays."""
    why = take_away(item.path, used)
    if why is None:
        for name in item.names:
            forget(root, name, item.arch, item.digest)
        if not os.path.lexists(item.path):  # it may have been imported again
            remove_files(belongings(item.path))
    return why


def take_away(path: str, used: InUse) -> str | None:
    """Remove an image's file; if a job has begun to use it, return why it stays.

    The file is renamed first: a job that begins later finds no image, and the link of a job that
    began earlier is seen.
    """
    aside = f"{path}.{os.urandom(8).hex()}.going"
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return None
    why = used.why_not_now(path)
    if why is not None:
        publish.appear(aside, path)
    remove_files((aside,))
    return why


def forget(root: str, name: str, arch: str, digest: str = "") -> None:
    """Remove a name, unless `digest` is given and the name stands for another image."""
    path = f"{root}/refs/{ref_name(name, arch)}.json"
    ref = _ref(path)
    if ref is not None and digest in {"", ref.digest}:
        _unlink(path)


class Limits(NamedTuple):
    """Limits of a store: seconds since an image's import, since its last use, and total bytes."""

    age_s: float | None = None
    unused_s: float | None = None
    size: int | None = None


def superfluous(found: Sequence[Item], limits: Limits, now: float) -> list[tuple[Item, str]]:
    """Return the images beyond the limits, each with the reason.

    The most recently used images, which come first in `found`, are kept up to the limit in bytes.
    """
    chosen, kept = [], 0
    for item in found:
        if limits.age_s is not None and now - item.imported > limits.age_s:
            chosen.append((item, f"imported {duration_text(now - item.imported)} ago"))
        elif limits.unused_s is not None and now - item.used > limits.unused_s:
            chosen.append((item, f"not used for {duration_text(now - item.used)}"))
        elif limits.size is not None and kept + item.size > limits.size:
            chosen.append((item, "the store is larger than the limit"))
        else:
            kept += item.size
    return chosen


def blobs(root: str) -> list[str]:
    """Return the layers in the store."""
    return [path for kind in ALGORITHMS for path in files_of(f"{root}/blobs/{kind}")]


def old_blobs(root: str, unused_s: float) -> list[str]:
    """Return the layers that no import has used for `unused_s` seconds."""
    found = blobs(root)
    now = now_at(os.path.dirname(found[0])) if found else 0
    return [path for path in found if is_older(path, unused_s, now)]


def room_of_blobs(root: str) -> int:
    """Return how many bytes the compressed layers in the store have."""
    sizes = 0
    for path in blobs(root):
        with contextlib.suppress(FileNotFoundError):
            sizes += os.path.getsize(path)
    return sizes


def keep_alive(root: str, now: float) -> int:
    """Renew the times of all images and their files, so that a purge of old files spares them.

    Return the number of images.
    """
    found = items(root)
    for item in found:
        publish.renew(item.path, now)
    publish.renew_files((*files_of(f"{root}/refs"), f"{root}/README"), now)
    return len(found)


def remove_links(paths: Iterable[str]) -> None:
    """Remove links, except those that this user may not remove."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def remove_files(paths: Iterable[str]) -> None:
    """Remove files, some of which may be gone already. Raise OSError."""
    for path in paths:
        _unlink(path)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
