"""`ce import SOURCE [NAME]`: import a registry or local image into the store or a file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import TYPE_CHECKING

from container_engine import process
from container_engine.cli.printing import messages, output
from container_engine.errors import UserError
from container_engine.images.importing.adopt import to_file
from container_engine.images.pull_policy import Pull
from container_engine.images.reference import (
    PODMAN,
    FileImage,
    LocalImage,
    RegistryImage,
    canonical_name,
    local_name,
    parse_source,
    without_tag,
)
from container_engine.images.store.store import architecture
from container_engine.submit.short_name import meant
from container_engine.submit.site import site_config
from container_engine.submit.stores import adopter, importer, own_store, rules, stores

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from container_engine.images.reference import Imported
    from container_engine.site import SiteConfig
    from container_engine.submit.context import Context

# endings of files that newcomers name without ./
_ARCHIVES = (".tar", ".tar.gz", ".tgz")
_FILES = (*_ARCHIVES, ".sqsh", ".sif")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image",
        metavar="SOURCE",
        help="as in an environment; ./FILE.sqsh, ./DIRECTORY, oci:DIR, oci-archive:FILE, "
        "docker-archive:FILE, dir:DIR, podman://NAME",
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
    parser.add_argument("--arch", metavar="ARCH", help="amd64, arm64; default: the compute nodes'")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    image = parse_source(arguments.image, context.cwd)
    if isinstance(image, RegistryImage | FileImage):
        _refuse_archive(arguments.image, context.cwd)
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
        _check_there(image)
    settings = site_config(context)
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


def _refuse_archive(given: str, cwd: str) -> None:
    """Raise UserError for a tar archive that is given without its kind."""
    path = os.path.join(cwd, given)
    if not given.endswith(_ARCHIVES) or not os.path.isfile(path):
        return
    file = given if given.startswith(("/", ".")) else f"./{given}"
    hint = (
        f"from docker save: ce import docker-archive:{file};"
        f" in OCI's format: ce import oci-archive:{file}"
    )
    raise UserError("the format of the archive is missing", hint, name=given)


def _check_there(image: LocalImage) -> None:
    """Raise UserError if there is no such file.

    Otherwise skopeo would be retried, as if a registry were unreachable.
    """
    if not any(map(os.path.lexists, (image.place, without_tag(image.place)))):
        raise UserError("no such file or directory", name=image.name)


def _to_store(
    image: FileImage | Imported,
    called: str,
    arguments: argparse.Namespace,
    context: Context,
    settings: SiteConfig,
) -> str:
    if isinstance(image, FileImage):
        store = own_store(context, settings, arguments.arch)
        return adopter(context, settings, quiet=arguments.quiet).adopt(image.path, called, store)
    if isinstance(image, LocalImage):
        image = image._replace(called=called)
    source = importer(context, settings, quiet=arguments.quiet)
    with _saved(image, context, settings) as ready:
        return source.obtain(ready, stores(context, settings, arguments.arch), Pull.ALWAYS).path


def _to_file(
    image: FileImage | Imported,
    arguments: argparse.Namespace,
    context: Context,
    settings: SiteConfig,
) -> str:
    path = os.path.join(context.cwd, arguments.output)
    if os.path.lexists(path) and not arguments.force:
        raise UserError("exists", "--force replaces it", name=arguments.output)
    arch = architecture(arguments.arch or settings.image_architecture)
    if isinstance(image, FileImage):
        to_file(image.path, path, arch, adopter(context, settings, quiet=arguments.quiet))
        return path
    with _saved(image, context, settings) as ready:
        importer(context, settings, quiet=arguments.quiet).to_file(ready, path, arch)
    return path


@contextlib.contextmanager
def _saved(image: Imported, context: Context, settings: SiteConfig) -> Iterator[Imported]:
    """Yield the image, after saving one from Podman's storage to a temporary archive.

    Podman saves it, because Podman knows the user namespace of its storage.
    """
    if not isinstance(image, LocalImage) or image.transport != PODMAN:
        yield image
        return
    with tempfile.TemporaryDirectory(prefix="ce-import-") as work:
        archive = os.path.join(work, "archive")
        save = ["podman", "save", "--quiet", "--format", "docker-archive", "-o", archive]
        try:
            process.output([*save, image.place], context.env, settings.import_timeout_s)
        except process.CommandError as error:
            hint = "podman images lists yours"
            raise UserError(error.complaint, hint, name=image.name) from None
        yield image._replace(archive=archive)
