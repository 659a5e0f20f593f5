"""`ce gc`: makes room in the user's store, and keeps the rest from being purged."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from container_engine.cli.prepare import site_config
from container_engine.cli.stores import own_store
from container_engine.errors import UserError
from container_engine.images import inventory
from container_engine.images.importing import size_text, unusable
from container_engine.images.policy import bytes_of

if TYPE_CHECKING:
    import argparse

    from container_engine.cli.context import Context
    from container_engine.images.inventory import Item

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
        "--keep-alive",
        "--touch",
        action="store_true",
        help="make the rest look new to those who purge old files",
    )
    parser.add_argument("-n", "--dry-run", action="store_true", help="only say what would go")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not say what goes")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    root, now = own_store(context, site_config(context)).root, time.time()
    images = inventory.superfluous(inventory.items(root), _limits(arguments), now)
    layers = inventory.old_blobs(root, _BLOB_DAYS * _DAY_S, now)
    try:
        room = sum(map(os.path.getsize, layers))
        freed = room + sum(item.size for item, _why in images)
        if not arguments.quiet:
            for item, why in images:
                print(_line(item, why))
            if layers:
                print(f"{len(layers)} compressed layers ({size_text(room)}): unused for a week")
        if not arguments.dry_run:
            for item, _why in images:
                inventory.remove(root, item)
            for path in layers:
                os.unlink(path)
    except OSError as error:
        raise unusable(root, error) from None
    kept = 0
    if arguments.keep_alive and not arguments.dry_run:
        kept = inventory.keep_alive(root, now)
    if not arguments.quiet:
        _say_result(freed, kept, arguments)
    return 0


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
    print(f"{size_text(freed)} {done}" if freed else "nothing to remove")
    if arguments.keep_alive and not arguments.dry_run:
        print(f"{kept} images look new")
