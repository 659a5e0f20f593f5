"""Details of an image: its configuration, its layers, the sizes of its directories."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from container_engine.base.errors import UserError
from container_engine.base.model import Excerpt, MisfitError
from container_engine.images import image_files, squashfs
from container_engine.images.image_files import MANIFEST_SUFFIX
from container_engine.oci.image import ConfigWithHistory, Manifest

_LIST_TIMEOUT_S = 300
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


def tree(path: str, depth: int, env: Mapping[str, str]) -> dict[str, Content]:
    """Return the content of each directory of an image down to `depth`, the largest first.

    A file with several names counts under each. Raise CeError.
    """
    listed = squashfs.unsquashfs(["-lln", "-d", ""], path, (), env, _LIST_TIMEOUT_S)
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
