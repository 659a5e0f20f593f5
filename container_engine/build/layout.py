"""Write images and artifacts as OCI layouts, and clean the layout that a build makes.

A build may begin with an image of this host: its SquashFS file becomes a layout. Podman copies that
into the build's storage once, under a name made from the file's digest.

Podman reuses the step of a RUN line although the files that it mounts have changed (buildah#5400,
#4522), and that of an ENV line although an argument in it has another value (buildah#2837). So a
line with a hash of the files or of the values is added before RUN lines with mounts and ARG lines.

apt-get works in the only user of a build without a trace in the image. It becomes the user `_apt`
for its downloads, checks that it has, and gives up if not. A variable names a configuration file
that turns this off. The file is in the build's /dev/shm, which is in no layer. An added line of
each stage sets the variable, and `leave_out_added` removes the variable and added lines from the
image's configuration. Podman's --env would not do: it has no effect on the first step of a stage.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from container_engine.base import process
from container_engine.base.errors import UserError
from container_engine.images import squashfs
from container_engine.images.confine.cage import Cage
from container_engine.images.pack.layers import gzipped, hashed

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


def with_platform(configuration: bytes, arch: str) -> bytes:
    """Return an OCI configuration that names its platform: its own, else Linux on `arch`."""
    usual = {"architecture": arch, "os": "linux"}
    return json.dumps({**usual, **json.loads(configuration)}).encode()


def write_layout(
    base: Base,
    layout: str,
    env: Mapping[str, str],
    timeout_s: float,
    *,
    packed: bool = False,
) -> str:
    """Write the image to the new directory `layout`, and return the digest of its manifest.

    With `packed`, the layer is compressed. The same file and configuration give the same digest on
    hosts that compress alike. Raise CeError and OSError.
    """
    os.makedirs(f"{layout}/blobs/sha256")
    layer, content = _layer(base, layout, env, timeout_s, packed=packed)
    config = {
        **json.loads(base.configuration),
        "rootfs": {"type": "layers", "diff_ids": [content]},
        # one entry per layer; Podman reuses no step upon an entry without a time
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "container-engine"}],
    }
    return _manifest(layout, _document(layout, config, f"{_OCI}.config.v1+json"), [layer])


def write_artifact(layout: str, kind: str, files: Mapping[str, tuple[str, bytes]]) -> str:
    """Write files as an artifact of the type `kind`, and return the digest of its manifest.

    `files` has their names, media types and contents. Registries that know no artifacts, and
    skopeo, take its type from the configuration, as they do for charts of Helm. Raise OSError.
    """
    os.makedirs(f"{layout}/blobs/sha256")
    layers = [
        {
            **_blob_of(layout, content, media_type),
            "annotations": {"org.opencontainers.image.title": name},
        }
        for name, (media_type, content) in files.items()
    ]
    return _manifest(layout, _document(layout, {}, kind), layers)


def _manifest(layout: str, config: Mapping[str, object], layers: Sequence[object]) -> str:
    """Complete a layout with the manifest and the index; return the manifest's digest."""
    kind = f"{_OCI}.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers}
    described = _document(layout, manifest, kind)
    index = {"schemaVersion": 2, "manifests": [described]}
    _write(f"{layout}/index.json", json.dumps(index).encode())
    _write(f"{layout}/oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    return str(described["digest"])


def _layer(
    base: Base, layout: str, env: Mapping[str, str], timeout_s: float, *, packed: bool
) -> tuple[dict[str, object], str]:
    """Write the files of a SquashFS image as a layer; return its descriptor, and its diff_id.

    The image may be anybody's, so the program that reads it is confined.
    """
    if squashfs.place(base.path).start > 0:
        hint = "ce import ./FILE.sif NAME copies its file system into the store: use NAME"
        raise UserError("a SIF file, not read here", hint, "image-format", name=base.path)
    draft, size = f"{layout}/layer", 0
    content = blob = hashlib.sha256()
    argv = ["sqfs2tar", base.path]
    nothing = subprocess.DEVNULL
    try:
        with (
            open(draft, "wb") as file,
            process.reading(argv, env, timeout_s, nothing, Cage().close) as made,
        ):
            pieces = hashed(iter(lambda: made.read(_PIECE), b""), content)
            if packed:
                blob = hashlib.sha256()
                pieces = hashed(gzipped(pieces), blob)
            for piece in pieces:
                size += file.write(piece)
    except process.CommandError as error:
        why = f"its files cannot be read: {error.complaint.removeprefix(f'{base.path}: ')}"
        raise UserError(
            why,
            see="image-damaged",
            details=error.details,
            where="" if packed else "FROM",
            name=base.path,
        ) from None
    digest = blob.hexdigest()
    os.rename(draft, f"{layout}/blobs/sha256/{digest}")
    kind = f"{_OCI}.layer.v1.tar{'+gzip' if packed else ''}"
    described = {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}
    return described, f"sha256:{content.hexdigest()}"


def _document(layout: str, document: object, kind: str) -> dict[str, object]:
    return _blob_of(layout, json.dumps(document, ensure_ascii=False).encode(), kind)


def _blob_of(layout: str, content: bytes, kind: str) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    _write(f"{layout}/blobs/sha256/{digest}", content)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


# smallroot.sh writes the file
_APT_VARIABLE = "APT_CONFIG=/dev/shm/container-engine-apt.conf"
APT_LINE = f"ENV {_APT_VARIABLE}"
_INPUTS = "CE_INPUTS="


def inputs_line(content: str) -> str:
    """Return the line to add before one whose step depends on this content."""
    return f"ENV {_INPUTS}{hashlib.sha256(content.encode('utf-8', 'surrogateescape')).hexdigest()}"


def is_added(step: str) -> bool:
    """Check whether a build's step is that of an added line."""
    return step == APT_LINE or step.startswith(f"ENV {_INPUTS}")


def leave_out_added(layout: str) -> dict[str, Any]:
    """Remove what added lines left in the configuration of the image in an OCI layout.

    Return what is left of it. Raise OSError.
    """
    own: dict[str, Any] = {}
    index = _read(f"{layout}/index.json")
    for entry in index["manifests"]:
        manifest = _read(_blob(layout, entry))
        config = _read(_blob(layout, manifest["config"]))
        own = config.get("config", {})
        kept = [one for one in own.get("Env") or () if not is_added(f"ENV {one}")]
        if kept == (own.get("Env") or []):
            continue
        own["Env"] = kept
        config["history"] = [past for past in config.get("history") or () if not _is_line(past)]
        manifest["config"] = _replaced(layout, manifest["config"], config)
        entry.update(_replaced(layout, entry, manifest))
    with open(f"{layout}/index.json", "w", encoding="utf-8") as file:
        json.dump(index, file)
    return own


def _is_line(past: Mapping[str, Any]) -> bool:
    """Check whether an added line made this entry of an image's history. It makes no layer."""
    step = str(past.get("created_by", "")).rpartition("#(nop) ")[2].strip()
    return bool(past.get("empty_layer")) and is_added(step)


def _blob(layout: str, descriptor: Mapping[str, Any]) -> str:
    return os.path.join(layout, "blobs", *descriptor["digest"].split(":"))


def _read(path: str) -> Any:  # noqa: ANN401  # JSON has any type
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _replaced(layout: str, old: Mapping[str, Any], document: object) -> dict[str, Any]:
    """Write a document in place of another one and return its descriptor."""
    content = json.dumps(document).encode()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    new = {**old, "digest": digest, "size": len(content)}
    os.unlink(_blob(layout, old))
    with open(_blob(layout, new), "wb") as file:
        file.write(content)
    return new
