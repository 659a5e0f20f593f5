"""From a registry to a directory of blobs: skopeo does the work and knows the user's logins."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from container_engine import process
from container_engine.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.images.reference import RegistryImage

_FATAL = re.compile(r'level=fatal msg="(.*)"')
_RETRIES = "3"


class Fetched(NamedTuple):
    """An image as blobs in files. `digest` is that of the manifest, as the registry knows it."""

    digest: str
    architecture: str
    config: bytes
    layers: tuple[str, ...]
    size: int


class _Blob(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    digest: str
    size: int


class _Manifest(BaseModel):
    """What OCI manifests and Docker's (schema 2) have in common."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    config: _Blob
    layers: tuple[_Blob, ...]


class _Platform(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    architecture: str


def fetch(
    image: RegistryImage, directory: str, env: Mapping[str, str], timeout_s: float
) -> Fetched:
    """Puts the blobs of `image`, for this machine's architecture, into the new `directory`.

    skopeo verifies the digest of each. `env` is the user's: login state, registries.conf and
    policy.json all count. Raises UserError with what the registry said.
    """
    source, target = f"docker://{image.canonical}", f"dir:{directory}"
    try:
        process.attended(
            ["skopeo", "copy", "--retry-times", _RETRIES, source, target], env, timeout_s
        )
    except process.CommandError as error:
        raise UserError(f"'{image.name}': {_reason(error)}", error.hint) from None
    return read(image.name, directory)


def read(name: str, directory: str) -> Fetched:
    """The image in a directory that skopeo made. Raises UserError if we cannot use its format."""
    manifest_text = _contents(directory, "manifest.json")
    try:
        manifest = _Manifest.model_validate_json(manifest_text)
        config = _contents(directory, _file_name(manifest.config))
        platform = _Platform.model_validate_json(config)
    except ValidationError as error:
        raise UserError(
            f"'{name}': neither an OCI image nor a Docker image of schema 2: "
            f"{error.errors()[0]['msg'].lower()}"
        ) from None
    return Fetched(
        digest=f"sha256:{hashlib.sha256(manifest_text).hexdigest()}",
        architecture=platform.architecture,
        config=config,
        layers=tuple(os.path.join(directory, _file_name(layer)) for layer in manifest.layers),
        size=sum(layer.size for layer in manifest.layers),
    )


def _contents(directory: str, name: str) -> bytes:
    with open(os.path.join(directory, name), "rb") as file:
        return file.read()


def _file_name(blob: _Blob) -> str:
    """As skopeo's `dir:` format names blobs. The digest came from outside: it must be no path."""
    name = blob.digest.partition(":")[2]
    if not name.isalnum():
        raise UserError(f"'{blob.digest}' is not a digest")
    return name


def _reason(error: process.CommandError) -> str:
    """skopeo's last message without the form of its log."""
    found = _FATAL.findall(error.stderr)
    text = found[-1] if found else error.message
    return text.replace('\\"', '"').replace("\\n", "; ")
