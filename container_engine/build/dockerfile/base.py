"""Let a build begin with an image of this host: its SquashFS file becomes an OCI layout.

Podman copies the layout into the build's storage once, under a name made from the file's digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from container_engine.base import process
from container_engine.base.errors import UserError
from container_engine.images.confine.cage import Cage
from container_engine.images.store.store import architecture

_PIECE = 1 << 20
_OCI = "application/vnd.oci.image"
_FORM = 2  # of the layout: one that is in a build's storage in an older form is not used again


class Base(NamedTuple):
    """An image of this host, which a FROM line calls `name`.

    `digest` is that of the SquashFS file, `configuration` its OCI configuration without layers,
    `owner` the uid of the file's owner.
    """

    name: str
    path: str
    digest: str
    configuration: bytes
    owner: int

    @property
    def tag(self) -> str:
        """Return the name in the build's storage, which depends on the configuration, too.

        It also depends on the owner, who may have recorded the digest of somebody else's file.
        """
        parts = f"{_FORM} {self.digest} {self.owner} "
        content = hashlib.sha256(parts.encode() + self.configuration)
        return f"localhost/ce-base:{content.hexdigest()[:32]}"


def write_layout(base: Base, layout: str, env: Mapping[str, str], timeout_s: float) -> None:
    """Write the image to the new directory `layout`. Raise CeError and OSError."""
    os.makedirs(f"{layout}/blobs/sha256")
    layer = _layer(base.path, layout, env, timeout_s)
    config = {
        "architecture": architecture(),
        "os": "linux",
        **json.loads(base.configuration),
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        # one entry per layer; Podman reuses no step upon an entry without a time
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "container-engine"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": _document(layout, config, "config.v1+json"),
        "layers": [layer],
    }
    index = {
        "schemaVersion": 2,
        "manifests": [_document(layout, manifest, "manifest.v1+json")],
    }
    _write(f"{layout}/index.json", json.dumps(index).encode())
    _write(f"{layout}/oci-layout", b'{"imageLayoutVersion": "1.0.0"}')


def _layer(path: str, layout: str, env: Mapping[str, str], timeout_s: float) -> dict[str, object]:
    """Write the files of a SquashFS image as a layer, and return its descriptor.

    The image may be anybody's, so the program that reads it is confined.
    """
    draft, size, whole = f"{layout}/layer", 0, hashlib.sha256()
    argv = ["sqfs2tar", path]
    nothing = subprocess.DEVNULL
    try:
        with (
            open(draft, "wb") as file,
            process.reading(argv, env, timeout_s, nothing, Cage().close) as made,
        ):
            while piece := made.read(_PIECE):
                whole.update(piece)
                size += file.write(piece)
    except process.CommandError as error:
        why = f"its files cannot be read: {error.complaint.removeprefix(f'{path}: ')}"
        raise UserError(
            why, see="image-damaged", details=error.details, where="FROM", name=path
        ) from None
    digest = whole.hexdigest()
    os.rename(draft, f"{layout}/blobs/sha256/{digest}")
    return {"mediaType": f"{_OCI}.layer.v1.tar", "digest": f"sha256:{digest}", "size": size}


def _document(layout: str, document: object, kind: str) -> dict[str, object]:
    content = json.dumps(document, ensure_ascii=False).encode()
    digest = hashlib.sha256(content).hexdigest()
    _write(f"{layout}/blobs/sha256/{digest}", content)
    return {"mediaType": f"{_OCI}.{kind}", "digest": f"sha256:{digest}", "size": len(content)}


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
