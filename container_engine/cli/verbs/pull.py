"""`ce pull IMAGE`: get the newest image of that name into the store ahead of time."""

from __future__ import annotations

import argparse

from container_engine.base.errors import UserError
from container_engine.cli.command_line.options import add_arch, add_pull
from container_engine.images.reference import FileImage, Pull, RegistryImage, parse
from container_engine.images.resolve import Stored, refuse_bare_file
from container_engine.printing import messages, output
from container_engine.site.model import SiteConfig
from container_engine.submit.context import Context, site_config
from container_engine.submit.image_names import meant, with_environment_hint
from container_engine.submit.stores import importer, rules, stores


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", metavar="IMAGE", help="as in an environment: ubuntu:24.04")
    add_arch(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_pull(parser, default="always")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    image = parse(arguments.image, context.cwd)
    refuse_bare_file(arguments.image, context.cwd)
    if isinstance(image, FileImage):
        raise UserError("this is a file: there is nothing to pull", name=image.name)
    settings = site_config(context).for_arch(arguments.arch)
    try:
        stored = _pulled(image, arguments, context, settings)
    except UserError as error:
        instead = "ce pull takes an image; ce list shows that of each environment"
        raise with_environment_hint(error, arguments.image, context, settings, instead) from None
    output.line(stored.path)
    if not arguments.quiet:
        messages.say_use(arguments.image)
    return 0


def _pulled(
    image: RegistryImage, arguments: argparse.Namespace, context: Context, settings: SiteConfig
) -> Stored:
    """Return the image in the store, after getting its newest version."""
    image = meant(image, context.with_pull(arguments.pull), settings).image
    rules(context, settings).admit(image)
    places = stores(context, settings)
    pull = importer(context, settings, quiet=arguments.quiet)
    stored = pull.obtain(image, places, Pull(arguments.pull))
    if stored.origin:
        pull.say(f"{image.name}: from this host ({stored.origin}); no registry was asked")
    return stored
