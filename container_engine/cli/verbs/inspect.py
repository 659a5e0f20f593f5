"""`ce inspect NAME`: show the configuration of an image, its layers and what takes up space."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from container_engine.base.errors import UserError
from container_engine.base.model import Excerpt, MisfitError
from container_engine.base.text_layout import size_text
from container_engine.images import image_files, squashfs
from container_engine.images.image_files import MANIFEST_SUFFIX
from container_engine.images.reference import FileImage, RegistryImage, parse
from container_engine.images.resolve import refuse_bare_file
from container_engine.images.store.store import architecture
from container_engine.oci.image import ConfigWithHistory, Manifest
from container_engine.printing import output
from container_engine.site.model import SiteConfig
from container_engine.submit.context import Context, site_config
from container_engine.submit.environment import site_here
from container_engine.submit.image import check_single, environment_of, found_image, images_of
from container_engine.submit.image_names import image_named, meant, with_similar_hint
from container_engine.submit.stores import asking, rules, stores

_MAX_STEP = 60
_JOB = re.compile(r"\d+(?:\.\d+)?")
_LISTS = ("Env", "Entrypoint", "Cmd")
# mode, owner, size, date, time and path of a file
_LISTED = re.compile(r"-\S{9} \d+/\d+ +(\d+) \S+ \S+ (/.*)")
_Model = TypeVar("_Model", bound=Excerpt)


class Layer(NamedTuple):
    """A layer of an image. `size` is compressed; `made_by` is the build step that made it."""

    digest: str
    size: int
    made_by: str


class Content(NamedTuple):
    """The bytes before compression, and the number of files, below a directory of an image."""

    size: int
    files: int


class Details(NamedTuple):
    """Details of an image. `config` is the whole OCI configuration. Unknown facts are empty."""

    config: dict[str, Any]
    layers: tuple[Layer, ...]


class _Subject(NamedTuple):
    """An image to show; `path` is None if it is in no store.

    `signature` is what is known of that of a SIF file, "" for all others.
    """

    name: str
    digest: str
    path: str | None
    details: Details
    signature: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="an environment, or an image")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--depth", type=int, default=1, metavar="N", help="directories down to this depth (1)"
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    settings = site_config(context)
    subject = _subject(arguments.name, context, settings)
    tree = {}
    if subject.path is not None:
        tree = directories(subject.path, max(arguments.depth, 0), context.env)
    if arguments.json:
        output.document(_document(subject, tree))
    else:
        for line in _lines(subject, tree):
            output.line(line)
    return 0


def _subject(text: str, context: Context, settings: SiteConfig) -> _Subject:
    """Return the image to show without importing it: query the registry if no store has it."""
    edf = environment_of(text, context, settings)
    name = text if edf is None else edf.image or ""
    if edf is None and _JOB.fullmatch(text) and not image_named(text, context, settings):
        hint = f"for a job: ce trace {text} shows its launch, ce exec {text} opens a shell in it"
        raise UserError("neither an environment nor an image", hint, name=text)
    if edf is not None:
        check_single(edf)
    image = parse(name, context.cwd)
    refuse_bare_file(name, context.cwd)
    if not isinstance(image, FileImage):
        image = meant(image, context, settings).image
        if stores(context, settings).find(image) is None:
            try:
                return _remote(image, context, settings)
            except UserError as error:
                raise with_similar_hint(error, name, context, settings) from None
    content = context.with_pull("missing")
    if edf is None:
        found = found_image(name, content, settings)
    else:
        [found] = images_of(edf, content, site_here(context))
    path = found.image.path
    known = of_file(path)
    return _Subject(
        image.name, found.image.digest or "", path, known, _signature(path, context, settings)
    )


def _signature(path: str, context: Context, settings: SiteConfig) -> str:
    from container_engine.images.sif_signature import is_signed

    if (claim := is_signed(path)) is None:
        return ""
    if key := rules(context, settings).signer(path, path, context.tools_env):
        return f"by {key}, verified"
    return "not verified, the site has no policy.sif_keys" if claim else "none"


def _remote(image: RegistryImage, context: Context, settings: SiteConfig) -> _Subject:
    rules(context, settings).admit(image)
    with asking(image, context, settings) as registry:
        remote = registry.look_up(image, architecture(settings.image_architecture))
        configuration = registry.configuration(image, remote)
    known = of_documents(configuration, remote.manifest)
    return _Subject(image.name, remote.digest, None, known)


def _document(subject: _Subject, tree: dict[str, Content]) -> dict[str, Any]:
    return {
        "name": subject.name,
        "digest": subject.digest or None,
        "path": subject.path,
        "signature": subject.signature or None,
        "file": None if subject.path is None else squashfs.check(subject.path)._asdict(),
        "config": subject.details.config,
        "layers": [layer._asdict() for layer in subject.details.layers],
        "tree": {place: content._asdict() for place, content in tree.items()},
    }


def _lines(subject: _Subject, tree: dict[str, Content]) -> Iterator[str]:
    document = subject.details.config
    yield _row("image", subject.name)
    if subject.digest:
        yield _row("digest", subject.digest)
    if subject.path is None:
        yield _row("file", "none, this image is in no store (ce pull gets it)")
    else:
        block = squashfs.check(subject.path)
        size = size_text(block.bytes_used)
        yield _row("file", subject.path)
        yield _row("", f"{size}, {block.compressor}, blocks of {size_text(block.block_size)}")
    if subject.signature:
        yield _row("signature", subject.signature)
    for key in ("architecture", "os", "created", "author"):
        if document.get(key):
            yield _row(key, str(document[key]))
    yield from _run_lines(document.get("config") or {})
    yield from _layer_lines(subject.details)
    if tree:
        yield ""
        yield "content before compression"
    for place, content in tree.items():
        yield f"  {size_text(content.size):>9}  {content.files:>7} files  {place}"


def _run_lines(run: dict[str, Any]) -> Iterator[str]:
    for key, value in sorted(run.items()):
        if isinstance(value, list) and key == "Env":
            for number, entry in enumerate(value):
                yield _row("" if number else "env", str(entry))
        elif isinstance(value, dict):
            for number, (name, text) in enumerate(sorted(value.items())):
                yield _row("" if number else key.lower(), f"{name}={text}" if text else name)
        elif value:
            shown = json.dumps(value, ensure_ascii=False) if key in _LISTS else str(value)
            yield _row(key.lower(), shown)


def _layer_lines(known: Details) -> Iterator[str]:
    if not known.layers:
        return
    total = sum(layer.size for layer in known.layers)
    yield ""
    yield f"{len(known.layers)} layer{'s'[: len(known.layers) - 1]}, {size_text(total)} compressed"
    for layer in known.layers:
        step = " ".join(layer.made_by.split())
        step = step if len(step) <= _MAX_STEP else f"{step[: _MAX_STEP - 3]}..."
        digest = layer.digest.partition(":")[2][:12]
        yield f"  {size_text(layer.size):>9}  {digest}  {step}".rstrip()


def _row(key: str, value: str) -> str:
    return f"{key:<13} {value}".rstrip()


def of_file(path: str) -> Details:
    """Return the details of the SquashFS file `path`, from the files beside it.

    Raise UserError.
    """
    squashfs.check(path)
    texts = (
        image_files.read_beside(name, path) or b"{}"
        for name in (image_files.config_path(path), path + MANIFEST_SUFFIX)
    )
    return of_documents(*texts)


def of_documents(configuration: bytes, manifest: bytes) -> Details:
    """Return the details in an image's configuration and manifest. Raise UserError."""
    steps = _parsed(ConfigWithHistory, configuration, "configuration").history or ()
    blobs = _parsed(Manifest, manifest, "manifest").layers
    document: dict[str, Any] = json.loads(configuration)
    made_by = [step.created_by for step in steps if not step.empty_layer]
    made_by += [""] * (len(blobs) - len(made_by))
    pairs = zip(blobs, made_by, strict=False)
    return Details(document, tuple(Layer(blob.digest, blob.size, step) for blob, step in pairs))


def _parsed(model: type[_Model], text: bytes, what: str) -> _Model:
    try:
        return model.of_json(text)
    except MisfitError as error:
        message = f"the image's {what}: {error}"
        raise UserError(message, see="image-format") from None


def directories(path: str, depth: int, env: Mapping[str, str]) -> dict[str, Content]:
    """Return the content of each directory of an image down to `depth`, the largest first.

    A file with several names counts under each. Raise CeError.
    """
    listed = squashfs.listed(path, env)
    found: dict[str, Content] = {}
    for line in listed.decode("utf-8", "replace").split("\n"):
        match = _LISTED.fullmatch(line)
        if match is None:
            continue  # not a file, or the rest of a name that contains a line break
        parts = match[2].split("/")[1:-1]
        size = int(match[1])
        for length in range(min(depth, len(parts)) + 1):
            place = "/" + "/".join(parts[:length])
            before = found.get(place, Content(0, 0))
            found[place] = Content(before.size + size, before.files + 1)
    return dict(sorted(found.items(), key=lambda item: -item[1].size))
