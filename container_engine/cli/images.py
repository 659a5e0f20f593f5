"""`ce images`: what the stores have."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from container_engine.cli.prepare import site_config
from container_engine.cli.stores import stores
from container_engine.images.importing import size_text
from container_engine.images.inventory import Item, items

if TYPE_CHECKING:
    import argparse

    from container_engine.cli.context import Context

_HEAD = ("NAME", "DIGEST", "ARCH", "SIZE", "CREATED", "USED", "STORE")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    roots = [store.root for store in stores(context, site_config(context)).all()]
    found = [(root, item) for root in roots for item in items(root)]
    if arguments.json:
        print(json.dumps([{**item._asdict(), "store": root} for root, item in found], indent=2))
        return 0
    rows = [_HEAD, *(_row(root, item) for root, item in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    return 0


def _row(root: str, item: Item) -> tuple[str, ...]:
    digest = item.digest.removeprefix("sha256:")[:12]
    name = ", ".join(item.names) or "-"
    size = size_text(item.size)
    return name, digest, item.arch, size, _day(item.created), _day(item.used), root


def _day(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
