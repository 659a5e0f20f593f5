"""What a store has, and how to make room in it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from container_engine.errors import UserError
from container_engine.images import config
from container_engine.images.store import identity, publish
from container_engine.images.store.beside import small
from container_engine.images.store.files import files_of, is_older, now_at
from container_engine.images.store.publish import Use, belongings
from container_engine.images.store.store import CLOCKS_S, Ref, read_ref, ref_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from container_engine.images.store.in_use import InUse

_IMAGE = re.compile(r"(sha256)-([0-9a-f]{64})-(\w+)\.sqsh")
_FRACTION = re.compile(r"\.[0-9]+")
_STAMP_S = 6 * 3600  # a launch says no more often that it uses an image


class Item(NamedTuple):
    """An image of a store. Times are seconds since 1970.

    `created` is what its maker says, else when it was imported. `used` is the time of the last
    launch, to some hours, or a later time of access where the file system keeps those.
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
    """A ref with its file, and the architecture it is for."""

    path: str
    arch: str
    ref: Ref | None


def refs(root: str) -> Iterator[Named]:
    for path in files_of(f"{root}/refs"):
        if path.endswith(".json"):
            yield Named(path, path.removesuffix(".json").rpartition("-")[2], _ref(path))


def _ref(path: str) -> Ref | None:
    """One that another user has put there is none."""
    try:
        return read_ref(path)
    except UserError:
        return None


def items(root: str) -> list[Item]:
    """The images of the store `root`, the one used last first."""
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
    # both are the same after `keep_alive`, which is no use
    is_read = status.st_atime_ns != status.st_mtime_ns
    read = status.st_atime if is_read else 0
    imported = _credible(noted.imported, status.st_mtime)
    used = max(_credible(noted.used, noted.imported, status.st_mtime), _credible(read, 0))
    created = _created(config.beside(path)) or imported
    return Item(path, digest, arch, names, status.st_size, created, imported, used)


def _credible(*times: float) -> float:
    """The first one that no clock has made that was ahead, else now."""
    now = time.time()
    return next((when for when in times if when < now + CLOCKS_S), now)


def _created(path: str) -> float | None:
    """What an OCI configuration says; times of the first years are those of reproducible builds."""
    try:
        text = str(json.loads(small(path))["created"])
        return datetime.fromisoformat(_FRACTION.sub("", text)).timestamp()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def remove(root: str, item: Item, used: InUse) -> str | None:
    """Remove an image with its names; return why not where a job has begun to use it."""
    why = take_away(item.path, used)
    if why is None:
        for name in item.names:
            forget(root, name, item.arch, item.digest)
        if not os.path.lexists(item.path):  # or it has been imported again
            remove_files(belongings(item.path))
    return why


def take_away(path: str, used: InUse) -> str | None:
    """Remove an image's file; return why not where a job has begun to use it.

    It is put aside first: a job that begins after that finds no image, and what one says that has
    begun before is seen.
    """
    aside = f"{path}.{secrets.token_hex(8)}.going"
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
    """Remove the name; one that stands for another image than `digest` stays."""
    path = f"{root}/refs/{ref_name(name, arch)}.json"
    ref = _ref(path)
    if ref is not None and digest in {"", ref.digest}:
        _unlink(path)


class Limits(NamedTuple):
    """What goes: images imported or last used so many seconds ago, the oldest beyond `size`."""

    age_s: float | None = None
    unused_s: float | None = None
    size: int | None = None


def superfluous(found: Sequence[Item], limits: Limits, now: float) -> list[tuple[Item, str]]:
    """What goes, with the reason; of what would be too much, that used last stays."""
    chosen, kept = [], 0
    for item in found:  # the one used last first
        if limits.age_s is not None and now - item.imported > limits.age_s:
            chosen.append((item, f"imported {_duration(now - item.imported)} ago"))
        elif limits.unused_s is not None and now - item.used > limits.unused_s:
            chosen.append((item, f"not used for {_duration(now - item.used)}"))
        elif limits.size is not None and kept + item.size > limits.size:
            chosen.append((item, "too much together"))
        else:
            kept += item.size
    return chosen


def _duration(seconds: float) -> str:
    """In the largest unit of which there are two; what is later than now was just now."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def old_blobs(root: str, unused_s: float) -> list[str]:
    """Layers that no import has used for so long."""
    found = files_of(f"{root}/blobs/sha256")
    now = now_at(f"{root}/blobs/sha256") if found else 0
    return [path for path in found if is_older(path, unused_s, now)]


def mark_used(path: str, now: float) -> None:
    """Of an image that a launch uses; nothing where the store belongs to somebody else.

    Its files get the time of now, too: where old files are purged, what is in use is none.
    """
    noted = publish.use(path)
    if noted is not None and now - noted.used > _STAMP_S:
        with contextlib.suppress(OSError):
            publish.note_use(path, noted._replace(used=now))
        _touch_image(path, now)


def keep_alive(root: str, now: float) -> int:
    """Makes all images and what belongs to them look new, for file systems that purge old files.

    Returns how many images.
    """
    found = items(root)
    for item in found:
        _touch_image(item.path, now)
    _touch((*files_of(f"{root}/refs"), f"{root}/README"), now)
    return len(found)


def _touch_image(path: str, now: float) -> None:
    digest = identity.known_digest(path)
    _touch((path, *belongings(path)), now)
    if digest:
        identity.note(path, digest)  # it still fits


def _touch(paths: Iterable[str], now: float) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.utime(path, (now, now))


def remove_links(paths: Iterable[str]) -> None:
    """Those of others stay where they may not be removed."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def remove_files(paths: Iterable[str]) -> None:
    """Raises OSError; what is gone already is none."""
    for path in paths:
        _unlink(path)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
