"""`ce import IMAGE`: an image from a registry, ahead of time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from container_engine.cli.prepare import importer, site_config, user_store
from container_engine.errors import UserError
from container_engine.images.reference import FileImage, parse

if TYPE_CHECKING:
    import argparse

    from container_engine.cli.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", metavar="IMAGE", help="as in an environment: ubuntu:24.04")
    parser.add_argument(
        "-o", "--output", metavar="FILE.sqsh", help="write this file instead of into the store"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace FILE.sqsh if it exists")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    image = parse(arguments.image, context.cwd)
    if isinstance(image, FileImage):
        raise UserError(f"'{image.name}': a file, there is nothing to import")
    settings = site_config(context)
    if arguments.output is None:
        store = user_store(context, settings)
        digest = importer(context, settings).obtain(image, store, again=True)
        print(store.image(digest))
        return 0
    path = os.path.join(context.cwd, arguments.output)
    if os.path.lexists(path) and not arguments.force:
        raise UserError(f"'{arguments.output}': exists", "--force replaces it")
    importer(context, settings).to_file(image, path)
    print(path)
    return 0
