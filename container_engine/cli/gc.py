"""`ce gc`: free space in the user's store, and protect the remaining images from purges."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from container_engine.cli import output
from container_engine.cli.jobs import used_by_jobs
from container_engine.errors import UserError
from container_engine.images.fetch.importing import unusable
from container_engine.images.policy import bytes_of
from container_engine.images.store import inventory, lease, void_store
from container_engine.images.store.files import size_text
from container_engine.images.store.in_use import NOTHING
from container_engine.images.store.store import VOID
from container_engine.submit.prepare import site_config
from container_engine.submit.stores import own_store

if TYPE_CHECKING:
    import argparse

    from container_engine.images.store.in_use import InUse
    from container_engine.images.store.inventory import Item
    from container_engine.submit.context import Context

_DAY_S = 86400
_BLOB_DAYS = 7


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--unused", type=float, metavar="DAYS", help="remove images not used for so many days"
    )
    parser.add_argument(
        "--age", type=float, metavar="DAYS", help="remove images imported so many days ago"
    )
    parser.add_argument(
        "--size", metavar="SIZE", help="remove the least recently used beyond SIZE (50G)"
    )
    parser.add_argument(
        "--layers",
        action="store_true",
        help="remove all compressed layers, which only spare later imports a download",
    )
    parser.add_argument(
        "--keep-alive",
        "--touch",
        action="store_true",
        help="refresh the rest's times, for file systems that purge old files",
    )
    parser.add_argument("-n", "--dry-run", action="store_true", help="only say what would go")
    parser.add_argument(
        "-f", "--force", action="store_true", help="also remove what running jobs use"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="do not say what goes")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    is_any = _remove_passing(arguments, context)
    if context.env.get("EDF_IMAGESTORE") == VOID:
        if not is_any and not arguments.quiet:
            output.line("nothing to remove")
        return 0
    root, now = own_store(context, site_config(context)).root, time.time()
    used = used_by_jobs(root, context)
    chosen = inventory.superfluous(inventory.items(root), _limits(arguments), now)
    kept = [] if arguments.force else [item for item, _why in chosen if used.why_not(item.path)]
    going = _Going(
        [(item, why) for item, why in chosen if item not in kept],
        *_layers(root, arguments),
    )
    try:
        freed = going.size()
        if not arguments.quiet:
            for item in kept:
                output.line(f"kept: {_line(item, used.why_not(item.path) or '')}")
            going.say()
        if not arguments.dry_run:
            freed -= _remove(going, root, used, arguments)
    except OSError as error:
        raise unusable(root, error) from None
    alive = 0
    if arguments.keep_alive and not arguments.dry_run:
        alive = inventory.keep_alive(root, now)
    if not arguments.quiet:
        _say_result(freed, alive, arguments)
    return 0


def _remove_passing(arguments: argparse.Namespace, context: Context) -> bool:
    """Remove the stores of killed launches with EDF_IMAGESTORE=void; return whether any existed.

    --dry-run only lists them.
    """
    find = void_store.dead if arguments.dry_run else void_store.remove_dead
    found = find(context.env)
    for left in found:
        if not arguments.quiet:
            output.line(f"{left.root}: left by a launch that was killed")
    return bool(found)


def _layers(root: str, arguments: argparse.Namespace) -> tuple[list[str], str]:
    """Return the layers to remove and the reason, sparing any that an import may be reading."""
    if arguments.layers and not _is_importing(root):
        return inventory.old_blobs(root, -1), "only spare later imports a download"
    if arguments.layers and not arguments.quiet:
        output.line("layers of the last week are kept: an import is running")
    return inventory.old_blobs(root, _BLOB_DAYS * _DAY_S), "unused for a week"


def _is_importing(root: str) -> bool:
    return any(not lock.is_stale for lock in lease.found_in(f"{root}/locks"))


class _Going(NamedTuple):
    """The images to remove, each with the reason, and the files of layers."""

    images: list[tuple[Item, str]]
    layers: list[str]
    why_layers: str

    def size(self) -> int:
        return self._room() + sum(item.size for item, _why in self.images)

    def say(self) -> None:
        for item, why in self.images:
            output.line(_line(item, why))
        if self.layers:
            room = size_text(self._room())
            many = "s"[: len(self.layers) - 1]
            output.line(f"{len(self.layers)} compressed layer{many} ({room}): {self.why_layers}")

    def go(self, root: str, used: InUse) -> list[tuple[Item, str]]:
        """Remove all; return the images that must stay because jobs have begun to use them."""
        left = []
        for item, _why in self.images:
            why = inventory.remove(root, item, used)
            if why is not None:
                left.append((item, why))
        inventory.remove_files(self.layers)
        return left

    def _room(self) -> int:
        return sum(map(os.path.getsize, self.layers))


def _remove(going: _Going, root: str, used: InUse, arguments: argparse.Namespace) -> int:
    """Remove all; return the number of bytes that stay because jobs have begun to use them."""
    left = going.go(root, NOTHING if arguments.force else used)
    if not arguments.quiet:
        for item, why in left:
            output.line(f"kept: {_line(item, why)}")
    inventory.remove_links(used.over)
    return sum(item.size for item, _why in left)


def _limits(arguments: argparse.Namespace) -> inventory.Limits:
    size = None if arguments.size is None else bytes_of(arguments.size)
    if arguments.size is not None and size is None:
        raise UserError(f"--size={arguments.size}: not a size", "for example 500M or 50G")
    return inventory.Limits(_seconds(arguments.age), _seconds(arguments.unused), size)


def _seconds(days: float | None) -> float | None:
    return None if days is None else days * _DAY_S


def _line(item: Item, why: str) -> str:
    names = ", ".join(item.names) or item.digest
    return f"{names} {item.arch} ({size_text(item.size)}): {why}"


def _say_result(freed: int, kept: int, arguments: argparse.Namespace) -> None:
    done = "would be freed" if arguments.dry_run else "freed"
    output.line(f"{size_text(freed)} {done}" if freed else "nothing to remove")
    if arguments.keep_alive and not arguments.dry_run:
        output.line(f"{kept} images look new")
