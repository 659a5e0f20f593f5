"""What is wrong with a store, and the way to put it right: what is damaged is imported again."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from typing import TYPE_CHECKING, NamedTuple

from container_engine.errors import UserError
from container_engine.images import blobs, config, inventory, lease, squashfs

if TYPE_CHECKING:
    from collections.abc import Iterator

_OLD_S = 3600  # a file that an import may be working on is younger


class Damage(NamedTuple):
    """`also` are paths that must go together with `path`."""

    path: str
    problem: str
    also: tuple[str, ...] = ()


def check(root: str) -> Iterator[Damage]:
    """Everything that is wrong with the store. Reads all of it."""
    for item in inventory.items(root):
        problem = _image_problem(item.path)
        if problem:
            also = (config.beside(item.path), item.path + inventory.SUM_SUFFIX)
            yield Damage(item.path, problem, also)
    yield from _lonely(root)
    yield from _bad_refs(root)
    for path in inventory.files(f"{root}/blobs/sha256"):
        if blobs.sha256(path) != os.path.basename(path):
            yield Damage(path, "not what its name says")
    yield from _left_behind(root)


def repair(damage: Damage) -> None:
    """Removes what is damaged. Raises OSError."""
    for path in (damage.path, *damage.also):
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _image_problem(path: str) -> str | None:
    try:
        squashfs.check(path)
        with open(config.beside(path), "rb") as file:
            config.from_document(file.read(), "its configuration")
    except UserError as error:
        return error.message.removeprefix(f"'{path}': ")
    except FileNotFoundError:
        return "its configuration is missing"
    try:
        with open(path + inventory.SUM_SUFFIX, encoding="ascii") as file:
            expected = file.read().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return None if blobs.sha256(path) == expected else "its content has changed since the import"


def _lonely(root: str) -> Iterator[Damage]:
    for path in inventory.files(f"{root}/images"):
        image = path.removesuffix(".json").removesuffix(inventory.SUM_SUFFIX)
        if image != path and not os.path.exists(image) and _is_old(path):
            yield Damage(path, "there is no image that it belongs to")


def _bad_refs(root: str) -> Iterator[Damage]:
    there = {(item.digest, item.arch) for item in inventory.items(root)}
    for named in inventory.refs(root):
        if named.ref is None:
            yield Damage(named.path, "cannot be understood")
        elif (named.ref.digest, named.arch) not in there:
            yield Damage(named.path, f"{named.ref.name} leads to no image")


def _left_behind(root: str) -> Iterator[Damage]:
    machine, live = lease.this_machine(), set()
    for path in inventory.files(f"{root}/locks"):
        holder = lease.read(path)
        if holder is not None and (holder.is_dead(machine) or _is_old(path)):
            yield Damage(path, f"the lock of {holder}, which is gone")
        elif holder is not None:
            live.add(holder.token)
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(f"{root}/work")):
            if name not in live:
                yield Damage(f"{root}/work/{name}", "left by an import that was ended")


def _is_old(path: str) -> bool:
    try:
        return time.time() - os.stat(path).st_mtime > _OLD_S
    except OSError:
        return False
