"""`ce push IMAGE REFERENCE`: send an image of this host, or an environment, to a registry."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable

from container_engine.base.errors import CeError, UserError
from container_engine.base.process import reason
from container_engine.base.text_layout import size_text
from container_engine.build.container_archive import draft_directory
from container_engine.build.layout import Base, with_platform, write_artifact, write_layout
from container_engine.cli.command_line.options import add_arch
from container_engine.images import image_files, squashfs
from container_engine.images.fetch.registry import check_platform
from container_engine.images.free_space import without_room
from container_engine.images.reference import (
    LOCAL_REGISTRY,
    FileImage,
    LocalImage,
    RegistryImage,
    parse,
)
from container_engine.images.resolve import configuration, refuse_bare_file
from container_engine.images.store.store import architecture
from container_engine.printing import messages, output
from container_engine.printing.messages import listener
from container_engine.site.model import SiteConfig
from container_engine.submit.context import Context, site_config
from container_engine.submit.image_names import image_named, stored, with_environment_hint
from container_engine.submit.sent_environment import TYPE, to_send
from container_engine.submit.stores import asking, stores

# writes a layout to a new directory, after it has said what takes long; returns the digest
_Write = Callable[[str, Callable[[str], None]], str]

_ELSEWHERE = "push on a host that reaches the registry, such as a login node, or set HTTPS_PROXY"
_ASK_THERE = "the registry can be reached and refuses: ask those who run it"
_ANSWER = re.compile(r"status ?code|HTTP status", re.IGNORECASE)
# entries of an image that mean something else in a layer: the device by which overlayfs marks what
# was removed, and names by which layers do; the target of a link may have any name. A line that is
# no entry is the rest of a name with a line end
_ENTRY = rb"\S{9} \d+/\d+ +[\d, ]+ \S+ \S+ "
_MARK = re.compile(
    rb"(?:c\S{9} \d+/\d+ +0, +0 \S+ \S+ "
    rb"|[^l]%b(?=(?:.*/)?\.wh\.)|l%b(?=(?:(?:(?! -> ).)*/)?\.wh\.)"
    rb"|(?!.%b)(?=.*/\.wh\.))(.*)" % (_ENTRY, _ENTRY, _ENTRY)
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("image", metavar="IMAGE", help="an image of a store, or ./FILE.sqsh")
    parser.add_argument(
        "reference", metavar="REFERENCE", help="where to: registry.example.org/me/tools:1.0"
    )
    parser.add_argument(
        "--environment",
        action="store_true",
        help="IMAGE is an environment: send its file and its lock, for ce init elsewhere",
    )
    add_arch(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    settings = site_config(context).for_arch(arguments.arch)
    target = _target(arguments.reference, context.cwd)
    write = _writer(arguments, target, context, settings)
    name = f"{target.tagged}@{_pushed(write, target, arguments, context)}"
    output.line(name)
    if not arguments.quiet:
        say = _say_take if arguments.environment else messages.say_use
        say(name)
    return 0


def _say_take(name: str) -> None:
    messages.say_progress(f"to take it, on any cluster: ce init NAME --from {name}")


def _writer(
    arguments: argparse.Namespace, target: RegistryImage, context: Context, settings: SiteConfig
) -> _Write:
    """Return what writes a layout of what is to be pushed. Raise CeError for what cannot be."""
    if arguments.environment:
        if arguments.arch:
            raise UserError("push: --arch goes with an image: a lock is for all architectures")
        sent = to_send(arguments.image, context, settings)
        files = sent.named(target.repository.rpartition("/")[2])
        return lambda layout, _say: write_artifact(layout, TYPE, files)
    path = _file(arguments, context, settings)
    document = _document(path, arguments.arch, context, settings)
    _refuse_marks(path, context)
    base = Base(arguments.image, path, "", document, os.geteuid())
    known = image_files.known_digest(path)

    def write(layout: str, say: Callable[[str], None]) -> str:
        say(f"{arguments.image}: packing its files as a layer")
        made = write_layout(base, layout, context.env, settings.import_timeout_s, packed=True)
        if known and image_files.computed_digest(path) != known:
            why = "damaged: its content is not what was recorded when it was made"
            raise UserError(why, "ce store repair; or make it again", "image-damaged", name=path)
        return made

    return write


def _target(text: str, cwd: str) -> RegistryImage:
    """Return the reference to push to. Raise UserError for one that is not whole."""
    image = parse(text, cwd)
    example = "for example registry.example.org/me/tools:1.0"
    if isinstance(image, FileImage):
        raise UserError("a path, not a reference to a registry", example, name=text)
    if image.is_file:
        hint = f"the same image as layers: ce push IMAGE {image.canonical}"
        raise UserError("SIF files are pulled, not pushed", hint, "image-reference", name=text)
    if image.digest is not None:
        why = "a digest follows from the content, it cannot be chosen"
        raise UserError(why, f"name a tag: {image.registry}/{image.repository}:TAG", name=text)
    if image.short or image.registry == LOCAL_REGISTRY:
        # what was meant for a site's registry must not become public
        hint = f"{example}; Docker Hub is docker.io/USER/{image.repository.rpartition('/')[2]}"
        raise UserError("names no registry", hint, "image-reference", name=text)
    return image


def _file(arguments: argparse.Namespace, context: Context, settings: SiteConfig) -> str:
    """Return the path of the image to push. Raise UserError."""
    text = arguments.image
    image = parse(text, context.cwd)
    refuse_bare_file(text, context.cwd)
    if isinstance(image, FileImage):
        squashfs.check(image.path)
        return image.path
    named = parse(image_named(text, context, settings) or text, context.cwd)
    assert isinstance(named, RegistryImage)
    named = stored(named, context, settings)
    found = stores(context, settings).find(named)
    if found is None:
        hint = "ce images lists the images of your stores; a file: ./FILE.sqsh"
        why = f"in no store of this host{f' for {arguments.arch}' if arguments.arch else ''}"
        error = UserError(why, hint, "image-unknown", name=text)
        instead = "ce push --environment sends it with its lock; ce list shows its image"
        raise with_environment_hint(error, text, context, settings, instead)
    return found.path


def _document(path: str, arch: str | None, context: Context, settings: SiteConfig) -> bytes:
    """Return the OCI configuration, as it was imported if it was. Raise CeError."""
    described = configuration([path], context.env)  # refuses what is not an image
    beside = image_files.read_beside(image_files.config_path(path), path)
    if beside is not None and arch is not None:
        check_platform(LocalImage(path, "file", path), beside, architecture(arch))
    return with_platform(beside or described, architecture(settings.image_architecture))


def _refuse_marks(path: str, context: Context) -> None:
    """Raise UserError for an image of which a layer would lose files, or remove some."""
    for line in squashfs.listed(path, context.env).split(b"\n"):
        mark = _MARK.match(line)
        if mark is not None:
            why = f"'{os.fsdecode(mark[1])}' is what marks a removed file in the layers of images"
            hint = "a difference (ce save --difference) goes above an image, and is none itself"
            raise UserError(why, hint, "image-format", name=path)


def _pushed(
    write: _Write,
    target: RegistryImage,
    arguments: argparse.Namespace,
    context: Context,
) -> str:
    """Send what `write` writes and return the digest of its manifest. Raise CeError."""
    settings, began = site_config(context), time.monotonic()
    limit, progress = settings.import_timeout_s, listener(quiet=arguments.quiet)
    place = os.path.abspath(context.env.get("TMPDIR") or "/var/tmp")
    try:
        with (
            asking(target, context, settings) as asked,
            draft_directory(place, limit) as work,
        ):
            registry = asked._replace(copy_s=limit, say=progress.say)
            registry.refuse_early(target)
            layout = os.path.join(work, "oci")
            digest = write(layout, progress.say)
            blobs = f"{layout}/blobs/sha256"
            total = sum(os.path.getsize(f"{blobs}/{name}") for name in os.listdir(blobs))

            def on_read(done: int) -> None:
                progress.far(target.tagged, "pushing", min(done, total), total)

            registry.push(layout, target, on_read)
    except CeError as error:
        if error.see == "registry-unreachable":
            has_answered = _ANSWER.search(error.reason)
            error.hint = error.hint or (_ASK_THERE if has_answered else _ELSEWHERE)
        raise
    except OSError as error:
        failed = UserError(reason(error), see="store-unusable", name=place)
        raise without_room(place, error) or failed from None
    took = time.monotonic() - began
    progress.say(f"{target.tagged}: pushed, {size_text(total)} in {took:.1f} s")
    return digest
