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

_DAY_S = 86400
_BLOB_DAYS = 7


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--unused", type=float, metavar="DAYS", help="remove images not used for so many days"
    )
    parser.add_argument("--size", metavar="SIZE", help="remove the oldest beyond SIZE (50G)")
    parser.add_argument(
        "--keep-alive", action="store_true", help="mark the rest as used, against purges"
    )
    parser.add_argument("-n", "--dry-run", action="store_true", help="only say what would go")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    limit = None if arguments.size is None else _bytes(arguments.size)
    unused_s = None if arguments.unused is None else arguments.unused * _DAY_S
    root, now = own_store(context, site_config(context)).root, time.time()
    images = inventory.superfluous(inventory.items(root), unused_s, limit, now)
    layers = inventory.old_blobs(root, _BLOB_DAYS * _DAY_S, now)
    try:
        freed = sum(map(os.path.getsize, layers)) + sum(item.size for item in images)
        for item in images:
            print(f"{item.path}  {', '.join(item.names)}")
        if arguments.dry_run:
            print(f"{size_text(freed)} would be freed")
            return 0
        for item in images:
            inventory.remove(root, item)
        for path in layers:
            os.unlink(path)
        if arguments.keep_alive:
            inventory.keep_alive(root)
    except OSError as error:
        raise unusable(root, error) from None
    print(f"{size_text(freed)} freed")
    return 0


def _bytes(text: str) -> int:
    size = bytes_of(text)
    if size is None:
        raise UserError(f"--size={text}: not a size", "for example 500M or 50G")
    return size
