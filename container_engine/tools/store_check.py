"""Check a store and repair it: what cannot be mended is removed, to be imported again."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.files import files_of, is_older, now_at, publish, sha256
from container_engine.base.mounts import remove_tree
from container_engine.base.process import reason
from container_engine.images import image_files, squashfs
from container_engine.images.digests import is_as_named
from container_engine.images.image_files import MANIFEST_SUFFIX, SUFFIXES, belongings, read_small
from container_engine.images.store import inventory, lease
from container_engine.images.store.inventory import NOTHING, InUse, Item
from container_engine.images.store.store import Store, ref_name

_OLD_S = 3600  # a running import's files are younger


class Damage(NamedTuple):
    """A path in a store with a problem.

    `also` are paths that must be removed with `path`; `mend` is the content that `path` should
    have, if known. `stamp` distinguishes the checked file from a later one, "" if not needed.
    `is_unread` says that this user cannot open it or what is beside it; it may be sound.
    """

    path: str
    problem: str
    also: tuple[str, ...] = ()
    mend: bytes | None = None
    stamp: str = ""
    is_unread: bool = False


class Checker:
    """A check of the store below `root`; `on_read` is called with the size of each file read."""

    def __init__(self, root: str, on_read: Callable[[int], None] = lambda _size: None) -> None:
        self._root = root
        self._on_read = on_read

    def size(self) -> int:
        """Return the approximate number of bytes that a check reads."""
        paths = [item.path for item in inventory.items(self._root)]
        paths += inventory.blobs(self._root)
        return sum(map(_size, paths))

    def check(self) -> Iterator[Damage]:
        """Yield each problem of the store; read all of its files."""
        for item in inventory.items(self._root):
            before = _status(item.path)
            damage = self._of_image(item) if before else None
            if before is None or _status(item.path) is None:
                continue  # removed meanwhile, with the files beside it
            with contextlib.suppress(OSError):  # a check does not count as a use
                os.utime(item.path, ns=(before.st_atime_ns, before.st_mtime_ns))
            if damage:
                yield damage._replace(stamp=_stamp(before)) if damage.mend is None else damage
        yield from self._strangers()
        yield from self._bad_refs()
        for path in inventory.blobs(self._root):
            with contextlib.suppress(FileNotFoundError):
                if broken := _unread(path):
                    yield Damage(path, broken, is_unread=True)
                elif not is_as_named(path):
                    yield Damage(path, "does not match its name")
                self._on_read(_size(path))
        yield from self._left_behind()

    def _of_image(self, item: Item) -> Damage | None:
        unread = next(filter(None, map(_unread, (item.path, *belongings(item.path)))), "")
        if unread:
            return Damage(item.path, unread, belongings(item.path), is_unread=True)
        broken = self._content_problem(item)
        if broken:
            return Damage(item.path, broken, belongings(item.path))
        path = image_files.config_path(item.path)
        broken = self._config_problem(item.path, path)
        if not broken:
            return None
        text = self._kept_config(item.path)
        if text is not None:
            return Damage(path, broken, mend=text)
        return Damage(item.path, broken, belongings(item.path))

    def _content_problem(self, item: Item) -> str | None:
        try:
            squashfs.check(item.path)
        except UserError as error:
            return error.reason
        expected = image_files.sums(item.path)
        if expected is None:
            return "its checksum is missing, so nothing vouches for its content"
        if self._sum(item.path) != expected.image:
            return "its content has changed since the import"
        with contextlib.suppress(FileNotFoundError):
            manifest = read_small(item.path + MANIFEST_SUFFIX)
            if f"sha256:{hashlib.sha256(manifest).hexdigest()}" != item.digest:
                return "its manifest has changed since the import"
        return None

    def _config_problem(self, image: str, path: str) -> str | None:
        try:
            text = read_small(path)
            squashfs.config_from_document(text, "its configuration")
        except FileNotFoundError:
            return "its configuration is missing"
        except UserError as error:
            return error.message
        except OSError as error:
            return f"its configuration: {reason(error)}"
        expected = image_files.sums(image)
        if expected and expected.config and expected.config != hashlib.sha256(text).hexdigest():
            return "its configuration has changed since the import"
        return None

    def _kept_config(self, image: str) -> bytes | None:
        """Return the configuration if it is kept among the blobs, else None."""
        expected = image_files.sums(image)
        if expected is None or not expected.config:
            return None
        with contextlib.suppress(OSError):
            text = read_small(f"{self._root}/blobs/sha256/{expected.config}")
            if hashlib.sha256(text).hexdigest() == expected.config:
                return text
        return None

    def _strangers(self) -> Iterator[Damage]:
        """Yield files that belong to no image, and drafts of imports that were ended."""
        now = now_at(f"{self._root}/images")
        for path in files_of(f"{self._root}/images"):
            image = next((path.removesuffix(s) for s in SUFFIXES if path.endswith(s)), "")
            if path.endswith(".sqsh") or (image.endswith(".sqsh") and os.path.exists(image)):
                continue
            if is_older(path, _OLD_S, now):
                yield Damage(path, "it belongs to no image")
        for path in files_of(f"{self._root}/refs"):
            if not path.endswith(".json") and is_older(path, _OLD_S, now):
                yield Damage(path, "left by an import that was ended")

    def _bad_refs(self) -> Iterator[Damage]:
        for named in inventory.refs(self._root):
            name = os.path.basename(named.path)
            if named.ref is None and (broken := _unread(named.path)):
                yield Damage(named.path, broken, is_unread=True)
            elif named.ref is None:
                yield Damage(named.path, "cannot be parsed")
            elif name != f"{ref_name(named.ref.name, named.arch)}.json":
                yield Damage(named.path, f"is for another name, {named.ref.name}")
            elif not os.path.lexists(Store(self._root, named.arch).image(named.ref.digest)):
                yield Damage(named.path, f"{named.ref.name} leads to no image")

    def _left_behind(self) -> Iterator[Damage]:
        # listed before the locks, so that an import that begins now is not in the list
        work = f"{self._root}/work"
        names = sorted(os.listdir(work)) if os.path.isdir(work) else []
        live = set()
        for lock in lease.found_in(f"{self._root}/locks"):
            if lock.is_stale:
                yield Damage(lock.path, f"the lock of {lock.holder}, which is gone")
            else:
                live.add(lock.holder.token)
        for name in names:
            if name not in live and os.path.lexists(f"{work}/{name}"):
                yield Damage(f"{work}/{name}", "left by an import that was ended")

    def _sum(self, path: str) -> str | None:
        """Return the digest of a file in hexadecimal, or None if it was removed."""
        try:
            found = sha256(path)
        except FileNotFoundError:
            return None
        self._on_read(_size(path))
        return found


def repair(damage: Damage, used: InUse = NOTHING) -> str | None:
    """Mend or remove a damaged path. Return why it was left as it is, or None.

    Raise OSError.
    """
    if damage.mend is not None:
        publish(damage.path, damage.mend)
        return None
    if damage.stamp:
        return _remove_image(damage, used)
    for path in (damage.path, *damage.also):
        if os.path.isdir(path):
            remove_tree(path)
        else:
            inventory.remove_files((path,))
    return None


def _remove_image(damage: Damage, used: InUse) -> str | None:
    with contextlib.suppress(FileNotFoundError):
        if _stamp(os.stat(damage.path)) != damage.stamp:
            return "it has changed since it was looked at"
    why = inventory.take_away(damage.path, used)
    if why is None:
        inventory.remove_files(damage.also)
    return why


def _unread(path: str) -> str:
    """Return why this user cannot open a file, "" if they can or there is none."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"{os.path.basename(path)}: {reason(error)}"
    return ""


def _status(path: str) -> os.stat_result | None:
    """Return the status of a file, or None if it was removed."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _size(path: str) -> int:
    status = _status(path)
    return status.st_size if status else 0


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"
