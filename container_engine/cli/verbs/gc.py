"""`ce gc`: free space in the user's store, and protect the remaining images from purges."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from typing import NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.files import now_at
from container_engine.base.text_layout import size_text
from container_engine.build.builder import cache_of
from container_engine.images.free_space import unusable
from container_engine.images.policy import bytes_of
from container_engine.images.store import ephemeral_store, inventory, lease
from container_engine.images.store.inventory import NOTHING, InUse, Item, used_by_jobs
from container_engine.images.store.store import VOID
from container_engine.printing import output
from container_engine.submit.context import Context, site_config
from container_engine.submit.stores import own_store

_DAY_S = 86400
_BLOB_DAYS = 7
_OF_ITEM = ("path", "names", "digest", "arch", "size")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--unused",
        type=float,
        metavar="DAYS",
        help="remove images that have not been used for DAYS days",
    )
    parser.add_argument(
        "--age",
        type=float,
        metavar="DAYS",
        help="remove images that were imported more than DAYS days ago",
    )
    parser.add_argument(
        "--size", metavar="SIZE", help="remove the least recently used beyond SIZE (50G)"
    )
    parser.add_argument(
        "--layers",
        action="store_true",
        help="remove all compressed layers; later imports download them again",
    )
    parser.add_argument(
        "--keep-alive",
        "--touch",
        action="store_true",
        help="set the times of all others to now, so that a purge of old files spares them",
    )
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="only show what would be removed"
    )
    parser.add_argument(
        "-f", "--force", action="store_true", help="also remove what running jobs use"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="do not list what is removed")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    report = _Report(quiet=arguments.quiet or arguments.json)
    _remove_passing(arguments, context, report)
    if context.env.get("EDF_IMAGESTORE") == VOID:
        if not report.void_stores:
            report.line("nothing to remove")
    else:
        _collect(arguments, context, report)
    if arguments.json:
        output.document(report.as_json(dry_run=arguments.dry_run))
    return 0


class _Report:
    """A record of what `ce gc` removes and keeps, printed as it happens unless quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.store: str | None = None
        self.void_stores: list[str] = []
        self.images: list[tuple[Item, str, bool]] = []  # with the reason, and whether it is kept
        self.layers = 0
        self.freed = self.refreshed = 0

    def line(self, text: str) -> None:
        if not self._quiet:
            output.line(text)

    def image(self, item: Item, why: str, *, kept: bool) -> None:
        self.images = [one for one in self.images if one[0] != item] + [(item, why, kept)]
        self.line(f"{'kept: ' if kept else ''}{_line(item, why)}")

    def as_json(self, *, dry_run: bool) -> dict[str, object]:
        images = [
            {**{key: getattr(item, key) for key in _OF_ITEM}, "reason": why, "kept": kept}
            for item, why, kept in self.images
        ]
        return {
            "dry_run": dry_run,
            "store": self.store,
            "images": images,
            "layers": self.layers,
            "void_stores": self.void_stores,
            "freed": self.freed,
            "refreshed": self.refreshed,
        }


def _collect(arguments: argparse.Namespace, context: Context, report: _Report) -> None:
    root = own_store(context, site_config(context)).root
    report.store = root
    now = min(time.time(), now_at(root))  # a clock that is ahead makes nothing old
    used = used_by_jobs(root, context.env, context.uid)
    chosen = inventory.superfluous(inventory.items(root), _limits(arguments), now)
    kept = [] if arguments.force else [item for item, _why in chosen if used.why_not(item.path)]
    going = _Going(
        [(item, why) for item, why in chosen if item not in kept],
        *_layers(root, arguments, report),
    )
    try:
        report.freed = going.size()
        for item in kept:
            report.image(item, used.why_not(item.path) or "", kept=True)
        going.say(report)
        if not arguments.dry_run:
            report.freed -= going.go(root, NOTHING if arguments.force else used, report)
            inventory.remove_links(used.over)
    except OSError as error:
        raise unusable(root, error) from None
    if arguments.keep_alive and not arguments.dry_run:
        report.refreshed = inventory.keep_alive(root, now)
    _say_result(report, arguments)
    _say_rest(report, root, arguments, context, going)


def _say_rest(
    report: _Report, root: str, arguments: argparse.Namespace, context: Context, going: _Going
) -> None:
    """Print what else takes room, and the command that removes it."""
    room = inventory.room_of_blobs(root) - (going.room() if arguments.dry_run else 0)
    if room > 0 and not arguments.layers:
        report.line(f"compressed layers keep {size_text(room)}: ce gc --layers removes them")
    cache = cache_of(context.env, context.uid)
    if os.path.isdir(cache):
        shown = shlex.quote(cache)
        report.line(f"steps of ce build are in {cache}: chmod -R u+rwX {shown}; rm -rf {shown}")


def _remove_passing(arguments: argparse.Namespace, context: Context, report: _Report) -> None:
    """Remove the stores of killed launches with EDF_IMAGESTORE=void; --dry-run only lists them."""
    find = ephemeral_store.dead if arguments.dry_run else ephemeral_store.remove_dead
    for left in find(context.env):
        report.void_stores.append(str(left.root))
        report.line(f"{left.root}: left by a launch that was killed")


def _layers(root: str, arguments: argparse.Namespace, report: _Report) -> tuple[list[str], str]:
    """Return the layers to remove and the reason, sparing any that an import may be reading."""
    if arguments.layers and not _is_importing(root):
        return inventory.old_blobs(root, -1), "only save later imports a download"
    if arguments.layers:
        report.line("layers of the last week are kept: an import is running")
    return inventory.old_blobs(root, _BLOB_DAYS * _DAY_S), "unused for a week"


def _is_importing(root: str) -> bool:
    return any(not lock.is_stale for lock in lease.found_in(f"{root}/locks"))


class _Going(NamedTuple):
    """The images to remove, each with the reason, and the files of layers."""

    images: list[tuple[Item, str]]
    layers: list[str]
    why_layers: str

    def size(self) -> int:
        return self.room() + sum(item.size for item, _why in self.images)

    def say(self, report: _Report) -> None:
        for item, why in self.images:
            report.image(item, why, kept=False)
        report.layers = len(self.layers)
        if self.layers:
            room = size_text(self.room())
            many = "s"[: len(self.layers) - 1]
            report.line(f"{len(self.layers)} compressed layer{many} ({room}): {self.why_layers}")

    def go(self, root: str, used: InUse, report: _Report) -> int:
        """Remove all; return the number of bytes that stay because jobs have begun to use them."""
        stay = 0
        for item, _why in self.images:
            why = inventory.remove(root, item, used)
            if why is not None:
                report.image(item, why, kept=True)
                stay += item.size
        inventory.remove_files(self.layers)
        return stay

    def room(self) -> int:
        """Return how many bytes the layers have."""
        return sum(map(os.path.getsize, self.layers))


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


def _say_result(report: _Report, arguments: argparse.Namespace) -> None:
    done = "would be freed" if arguments.dry_run else "freed"
    if report.freed:
        report.line(f"{size_text(report.freed)} {done}")
    else:
        report.line(f"nothing to remove in {report.store}")
    if arguments.keep_alive and not arguments.dry_run:
        report.line(f"{report.refreshed} images have new times")
