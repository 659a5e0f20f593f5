"""`ce import SOURCE [NAME]`: import a registry or local image into the store or a file."""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Iterator

from container_engine.base import process
from container_engine.base.errors import UserError
from container_engine.cli.command_line.options import add_arch
from container_engine.images.free_space import without_room
from container_engine.images.importing.adopt import to_file
from container_engine.images.importing.archives import Archives, located
from container_engine.images.listener import Quiet
from container_engine.images.reference import (
    PODMAN,
    FileImage,
    Imported,
    LocalImage,
    Pull,
    RegistryImage,
    canonical_name,
    local_name,
    parse_source,
)
from container_engine.images.store.store import architecture
from container_engine.printing import messages, output
from container_engine.site.model import SiteConfig
from container_engine.submit.context import Context, site_config
from container_engine.submit.image_names import meant
from container_engine.submit.stores import adopter, importer, own_store, rules, stores

# endings of files that newcomers name without ./
_FILES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".sqsh", ".sif")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image",
        metavar="SOURCE",
        help="as in an environment; ./FILE.sqsh, ./DIRECTORY, ./FILE.tar, oci:DIR[:TAG], "
        "oci-archive:FILE[:TAG], docker-archive:FILE[:NAME:TAG], dir:DIR, podman://NAME",
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="the name that environments use; default: localhost/ and the file's name",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.sqsh", help="write this file instead of into the store"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace FILE.sqsh if it exists")
    add_arch(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    image = parse_source(arguments.image, context.cwd)
    if isinstance(image, RegistryImage) and os.path.exists(
        os.path.join(context.cwd, arguments.image)
    ):
        raise UserError(
            "a reference to a registry, since a path begins with '/' or '.'",
            f"did you mean './{arguments.image}'?",
            name=arguments.image,
        )
    if isinstance(image, RegistryImage) and arguments.image.endswith(_FILES):
        raise UserError(
            "a reference to a registry, and there is no such file here",
            f"for a file: ./{arguments.image}; for the registry: docker://{arguments.image}",
            name=arguments.image,
        )
    if arguments.name and (arguments.output or isinstance(image, RegistryImage)):
        what = "-o FILE" if arguments.output else "an image of a registry"
        raise UserError(f"import: {what} and a NAME do not go together", "leave NAME out")
    if isinstance(image, LocalImage) and image.transport != PODMAN:
        image = located(image)
    settings = site_config(context).for_arch(arguments.arch)
    wanted = rules(context, settings)
    if isinstance(image, RegistryImage):
        image = meant(image, context, settings).image
        wanted.admit(image)
    if arguments.output is not None:
        output.line(_to_file(image, arguments, context, settings))
        return 0
    called = ""
    if not isinstance(image, RegistryImage):
        called = canonical_name(arguments.name) if arguments.name else local_name(image)
        wanted.admit_local(LocalImage(arguments.image, "local", called))
    output.line(_to_store(image, called, arguments, context, settings))
    if called and not arguments.quiet:
        short = arguments.name or called.removesuffix(":latest")
        messages.say_use(short)
    return 0


def _to_store(
    image: FileImage | Imported,
    called: str,
    arguments: argparse.Namespace,
    context: Context,
    settings: SiteConfig,
) -> str:
    with _ready(image, arguments, context, settings) as ready:
        if isinstance(ready, FileImage):
            store = own_store(context, settings)
            adopting = adopter(context, settings, quiet=arguments.quiet)
            return adopting.adopt(ready.path, called, store)
        named = ready._replace(called=called) if isinstance(ready, LocalImage) else ready
        source = importer(context, settings, quiet=arguments.quiet)
        return source.obtain(named, stores(context, settings), Pull.ALWAYS).path


def _to_file(
    image: FileImage | Imported,
    arguments: argparse.Namespace,
    context: Context,
    settings: SiteConfig,
) -> str:
    path = os.path.join(context.cwd, arguments.output)
    if os.path.lexists(path) and not arguments.force:
        raise UserError("exists", "--force replaces it", name=arguments.output)
    arch = architecture(settings.image_architecture)
    with _ready(image, arguments, context, settings) as ready:
        if isinstance(ready, FileImage):
            adopting = adopter(context, settings, quiet=arguments.quiet)
            to_file(ready.path, path, arch, adopting, replaces=arguments.force)
        else:
            source = importer(context, settings, quiet=arguments.quiet)
            source.to_file(ready, path, arch, replaces=arguments.force)
    return path


@contextlib.contextmanager
def _ready(
    image: FileImage | Imported,
    arguments: argparse.Namespace,
    context: Context,
    settings: SiteConfig,
) -> Iterator[FileImage | Imported]:
    """Yield what is to be imported: what skopeo can read, or a file or directory to adopt.

    Podman saves an image of its storage, because Podman knows the user namespace of that.
    """
    if isinstance(image, RegistryImage):
        yield image
        return
    with tempfile.TemporaryDirectory(prefix="ce-import-") as work:
        if isinstance(image, LocalImage) and image.transport == PODMAN:
            yield image._replace(ready=_saved(image, work, context, settings))
            return
        arch = architecture(settings.image_architecture)
        budget = rules(context, settings).budget()
        listener = Quiet() if arguments.quiet else context.listener()
        try:
            ready = Archives(work, arch, context.tools_env, budget, listener).ready(image)
        except OSError as error:
            damaged = UserError(process.reason(error), see="image-format", name=image.name)
            raise without_room(work, error) or damaged from None
        yield ready


def _saved(image: LocalImage, work: str, context: Context, settings: SiteConfig) -> str:
    """Return the name for skopeo of what Podman saves of an image of its storage.

    Docker's format has the configuration unchanged, but knows no layers that came as zstd.
    """

    def save(form: str, *options: str) -> str:
        saved = os.path.join(work, form)
        argv = ["podman", "save", "--quiet", "--format", form, *options, "-o", saved]
        process.output([*argv, image.place], context.env, settings.import_timeout_s)
        return saved

    try:
        try:
            return f"docker-archive:{save('docker-archive')}"
        except process.CommandError as error:
            if "zstd" not in error.stderr:
                raise
            return f"oci:{save('oci-dir', '--uncompressed')}"
    except process.CommandError as error:
        hint = "podman images lists yours"
        raise UserError(error.complaint, hint, name=image.name) from None
