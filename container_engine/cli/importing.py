"""`ce import SOURCE`: an image from a registry or from other tools, into the store or a file."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from container_engine import process
from container_engine.cli.prepare import site_config
from container_engine.cli.stores import importer, stores
from container_engine.errors import UserError
from container_engine.images.importing import Pull
from container_engine.images.reference import PODMAN, FileImage, LocalImage, parse_source
from container_engine.images.store import architecture

if TYPE_CHECKING:
    import argparse

    from container_engine.cli.context import Context
    from container_engine.images.reference import Imported
    from container_engine.site import SiteConfig


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image",
        metavar="SOURCE",
        help="as in an environment, or oci:DIR, oci-archive:FILE, docker-archive:FILE, podman://NAME",
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
    if isinstance(image, LocalImage) and image.transport == PODMAN:
        with tempfile.TemporaryDirectory(prefix="ce-import-") as work:
            archive = os.path.join(work, "archive")
            save = ["podman", "save", "--quiet", "--format", "docker-archive", "-o", archive]
            process.output([*save, image.place], context.env, settings.import_timeout_s)
            return _import(image._replace(archive=archive), arguments, context, settings)
    return _import(image, arguments, context, settings)


def _import(
    image: Imported, arguments: argparse.Namespace, context: Context, settings: SiteConfig
) -> int:
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
