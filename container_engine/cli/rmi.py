"""`ce rmi IMAGE`: an image of the user's store is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.cli.prepare import site_config
from container_engine.cli.stores import own_store
from container_engine.errors import UserError
from container_engine.images import inventory
from container_engine.images.importing import size_text, unusable
from container_engine.images.reference import FileImage, RegistryImage, parse_source

if TYPE_CHECKING:
    import argparse

    from container_engine.cli.context import Context
    from container_engine.images.reference import Imported

_SHORTEST = 6


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "images", nargs="+", metavar="IMAGE", help="a name, or the beginning of a digest"
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    root = own_store(context, site_config(context)).root
    for name in arguments.images:
        try:
            _remove(root, name, context.cwd)
        except OSError as error:
            raise unusable(root, error) from None
    return 0


def _remove(root: str, name: str, cwd: str) -> None:
    """A name that an image shares with others is only forgotten."""
    found = inventory.items(root)
    digest = name.removeprefix("sha256:")
    matching = [one for one in found if one.digest.removeprefix("sha256:").startswith(digest)]
    if len(digest) >= _SHORTEST and matching:
        for item in matching:
            _remove_item(root, item)
        return
    image = parse_source(name, cwd)
    known = [] if isinstance(image, FileImage) else [i for i in found if image.canonical in i.names]
    if isinstance(image, FileImage) or not known:
        others = sorted(n for i in found for n in i.names if n.startswith(_repository(image)))
        hint = f"there is {', '.join(others)}" if others else "ce images lists what is there"
        raise UserError(f"'{name}': not in {root}", hint)
    for item in known:
        inventory.forget(root, image.canonical, item.arch)
        if len(item.names) == 1:
            _remove_item(root, item)


def _repository(image: FileImage | Imported) -> str:
    return f"{image.registry}/{image.repository}:" if isinstance(image, RegistryImage) else "-"


def _remove_item(root: str, item: inventory.Item) -> None:
    inventory.remove(root, item)
    print(f"removed {item.path} ({size_text(item.size)})")
