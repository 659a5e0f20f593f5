"""`ce images`: list the images in the stores."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from container_engine.base.text_layout import one_line, size_text
from container_engine.images.reference import familiar
from container_engine.images.store.inventory import Item, items, room_of_blobs
from container_engine.printing import output
from container_engine.submit.context import Context, site_config
from container_engine.submit.stores import stores

_HEAD = ("NAME", "DIGEST", "ARCH", "SIZE", "CREATED", "USED")
_RIGHT = _HEAD.index("SIZE")
# the column NAME, and how short it may be
_SHORTEN = (0, 12)
_INDENT = 4


def configure(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--podman", action="store_true", help="those of your own Podman storage")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the images' files")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.podman:
        _list_podmans(arguments, context)
        return 0
    places = stores(context, site_config(context))
    roots = [store.root for store in places.all()]
    found = [(root, items(root)) for root in roots]
    if arguments.json:
        listed = [{**item._asdict(), "store": root} for root, some in found for item in some]
        output.document({"images": listed})
    elif arguments.quiet:
        for item in (item for _root, some in found for item in some):
            output.line(item.path)
    else:
        for number, (root, some) in enumerate(found):
            if number:
                output.line()
            is_own = places.own is not None and places.own.root == root
            _print(root, some, room_of_blobs(root) if is_own else 0)
        if not found:
            output.line("EDF_IMAGESTORE=void, and the site has no stores")
    return 0


def _list_podmans(arguments: argparse.Namespace, context: Context) -> None:
    """Print what Podman has, by the names with which `ce import` takes it."""
    from container_engine.tools.podman_storage import images

    found = images(context.env, context.uid)
    if arguments.quiet:
        for image in found:
            output.line(f"podman://{image.name}")
    elif not found:
        output.line("Podman has no images of yours that have a name")
    else:
        rows: list[Sequence[str]] = [("NAME", "DIGEST", "SIZE", "CREATED")]
        rows += [
            (
                f"podman://{one_line(image.name)}",
                image.digest.removeprefix("sha256:")[:12],
                size_text(image.size),
                _minute(image.created)[:10],
            )
            for image in found
        ]
        output.table(rows, right=(2,), shorten=_SHORTEN)
        output.folded("ce import NAME makes one an image of the engine's", _INDENT)


def _print(root: str, found: Sequence[Item], room: int) -> None:
    """Print the images of a store, whose compressed layers have `room` bytes."""
    layers = f"; compressed layers: {size_text(room)} (ce gc --layers)" if room else ""
    if not found:
        output.folded(f"{root}: no images (ce pull IMAGE gets one){layers}", _INDENT)
        return
    total = size_text(sum(item.size for item in found))
    count = "1 image" if len(found) == 1 else f"{len(found)} images"
    rows = [_HEAD, *(row for item in found for row in _rows(item))]
    output.folded(f"{root}: {count}, {total}{layers}", _INDENT)
    output.table(rows, right=(_RIGHT,), shorten=_SHORTEN)


def _rows(item: Item) -> list[Sequence[str]]:
    """Return a row for each name; further names of an image follow the first."""
    first, *others = (one_line(familiar(name)) for name in item.names or ("-",))
    digest = item.digest.removeprefix("sha256:")[:12]
    arch = one_line(item.arch)
    times = (_minute(item.created)[:10], _minute(item.used))
    rows: list[Sequence[str]] = [(first, digest, arch, size_text(item.size), *times)]
    return rows + [(f"  = {name}", "", "", "", "", "") for name in others]


def _minute(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
