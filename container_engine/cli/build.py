"""`ce build CONTEXT`: build an image from a Containerfile into the store."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from container_engine.cli import output
from container_engine.cli.foreign_options import add_foreign_of_builds, refuse_foreign
from container_engine.cli.named_image import say_use
from container_engine.errors import UserError
from container_engine.images.fetch.importing import Pull, unusable
from container_engine.images.pack.base import Base
from container_engine.images.pack.build import Builder, Recipe, find_containerfile
from container_engine.images.pack.containerfile_lines import bases_of
from container_engine.images.reference import (
    FileImage,
    LocalImage,
    canonical_name,
    local_name,
    parse,
)
from container_engine.images.resolve import configuration
from container_engine.images.store import identity
from container_engine.process import reason
from container_engine.submit.site import site_config
from container_engine.submit.stores import importer, own_store, rules, stores

if TYPE_CHECKING:
    import argparse

    from container_engine.images.store.store import Stores
    from container_engine.submit.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("context", metavar="CONTEXT", help="the directory of what COPY copies")
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="default: the CONTEXT's Containerfile or Dockerfile"
    )
    parser.add_argument(
        "-t",
        "--tag",
        metavar="NAME",
        help="the name that environments use; default: localhost/ and the directory's name",
    )
    parser.add_argument(
        "--build-arg",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="for ARG lines; NAME alone takes the value from the environment",
    )
    parser.add_argument("--target", metavar="STAGE", default="", help="build this stage only")
    parser.add_argument(
        "--no-cache", action="store_true", help="build although nothing has changed, all of it"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_foreign_of_builds(parser)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if (refused := refuse_foreign(arguments, ())) != 0:
        return refused
    settings = site_config(context)
    source = os.path.normpath(os.path.join(context.cwd, arguments.context))
    if not os.path.isdir(source):
        raise UserError("not a directory", name=arguments.context)
    containerfile = find_containerfile(source)
    if arguments.file:
        containerfile = os.path.join(context.cwd, arguments.file)
    own_store(context, settings)  # refuses if the user has no store to build into
    places = stores(context, settings)
    bases = _bases(source, containerfile, places, context)
    recipe = Recipe(source, containerfile, tuple(arguments.build_arg), arguments.target, bases)
    name = arguments.tag or local_name(FileImage(source, os.path.realpath(source)))
    try:
        image = LocalImage(name, "oci", "", called=canonical_name(name), made_of=recipe.digest())
    except OSError as error:
        raise unusable(source, error) from None
    rules(context, settings).admit_local(image)
    output.line(_image(image, recipe, arguments, context, places))
    if not arguments.quiet:
        say_use(arguments.tag or name.removesuffix(":latest"))
    return 0


def _image(
    image: LocalImage,
    recipe: Recipe,
    arguments: argparse.Namespace,
    context: Context,
    places: Stores,
) -> str:
    """Return the path of the image, reusing an earlier build if nothing has changed."""
    settings = site_config(context)
    told = importer(context, settings, quiet=arguments.quiet)
    known = places.find(image)
    if known is not None and known.ref.origin == image.made_of and not arguments.no_cache:
        told.say(f"{image.name}: nothing has changed since it was built (--no-cache builds it)")
        return known.path
    policy = settings.policy.signature_policy
    limit = settings.import_timeout_s
    builder = Builder(context.env, context.uid, os.getegid(), limit, policy)
    with tempfile.TemporaryDirectory(prefix="ce-build-") as work:
        layout = os.path.join(work, "oci")
        builder.build(
            recipe, image.made_of, layout, fresh=arguments.no_cache, quiet=arguments.quiet
        )
        return told.obtain(image._replace(place=layout), places, Pull.ALWAYS).path


def _bases(source: str, containerfile: str, places: Stores, context: Context) -> tuple[Base, ...]:
    """Return the images of this host that stages begin with: made here, or SquashFS files.

    Paths are relative to `source`, the directory of the build.

    Podman would ask a registry for the names, where a stranger may have images of the same.
    """
    try:
        with open(containerfile, encoding="utf-8", errors="replace") as file:
            bases = bases_of(file.read())
    except OSError as error:
        hint = "-f names the file; without it, the directory's own is taken"
        raise UserError(reason(error), hint, "image-build", name=containerfile) from None
    found = {}
    for _number, name in bases:
        path = _of_this_host(name, places, source)
        if path:
            described = configuration([path], context.env)  # refuses what is no image
            digest = identity.known_digest(path) or identity.computed(path)
            found[name] = Base(name, path, digest, described, os.stat(path).st_uid)
    return tuple(found.values())


def _of_this_host(name: str, places: Stores, directory: str) -> str:
    """Return the file of an image that was made here, "" for one of a registry."""
    try:
        image = parse(name, directory)
    except UserError:
        return ""  # Podman's error says more
    if isinstance(image, FileImage):
        return image.path
    found = places.find(image)
    return found.path if found is not None and found.ref.origin else ""
