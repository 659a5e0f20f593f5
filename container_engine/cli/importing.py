"""`ce import SOURCE`: an image from a registry or from other tools, into the store or a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from container_engine.cli.prepare import site_config
from container_engine.cli.stores import importer, stores
from container_engine.errors import UserError
from container_engine.images.importing import Pull
from container_engine.images.reference import FileImage, parse_source
from container_engine.images.store import architecture

if TYPE_CHECKING:
    import argparse

    from container_engine.cli.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image",
        metavar="SOURCE",
        help="as in an environment, or oci:DIR, oci-archive:FILE, docker-archive:FILE, dir:DIR",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.sqsh", help="write this file instead of into the store"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace FILE.sqsh if it exists")
    parser.add_argument("--arch", metavar="ARCH", help="amd64, arm64; default: the compute nodes'")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    image = parse_source(arguments.image, context.cwd)
    if isinstance(image, FileImage):
        raise UserError(f"'{image.name}': a file, there is nothing to import")
    settings = site_config(context)
    source = importer(context, settings, quiet=arguments.quiet)
    if arguments.output is None:
        print(source.obtain(image, stores(context, settings, arguments.arch), Pull.ALWAYS).path)
        return 0
    path = os.path.join(context.cwd, arguments.output)
    if os.path.lexists(path) and not arguments.force:
        raise UserError(f"'{arguments.output}': exists", "--force replaces it")
    source.to_file(image, path, arguments.arch or settings.image_architecture or architecture())
    print(path)
    return 0
