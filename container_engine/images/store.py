"""Where imported images lie: a directory on a file system that the nodes share.

    images/<digest>-<arch>.sqsh       an image
    images/<digest>-<arch>.sqsh.json  its OCI configuration
    refs/<name>-<arch>                the digest that the name stood for at its last import
    locks/ work/                      imports that run

Whatever has its name is complete.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from container_engine.errors import UserError
from container_engine.images.files import publish

if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.images.reference import RegistryImage

_MAX_NAME = 180  # bytes, of the 255 that file systems allow
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Store(NamedTuple):
    """The store below `root` for images of one architecture, by its name in OCI images."""

    root: str
    arch: str

    def image(self, digest: str) -> str:
        return f"{self.root}/images/{digest.replace(':', '-')}-{self.arch}.sqsh"

    def ref(self, image: RegistryImage) -> str:
        return f"{self.root}/refs/{self._name(image)}"

    def lock(self, image: RegistryImage) -> str:
        return f"{self.root}/locks/{self._name(image)}"

    def work(self, image: RegistryImage) -> str:
        return f"{self.root}/work/{self._name(image)}"

    def digest(self, image: RegistryImage) -> str | None:
        """Of the image that was imported under this name, if its file is still there."""
        try:
            with open(self.ref(image), encoding="ascii") as file:
                digest = file.read().strip()
        except (OSError, UnicodeDecodeError):
            return None
        is_digest = digest.startswith("sha256:") and "/" not in digest
        return digest if is_digest and os.path.isfile(self.image(digest)) else None

    def remember(self, image: RegistryImage, digest: str) -> None:
        publish(self.ref(image), f"{digest}\n".encode())

    def _name(self, image: RegistryImage) -> str:
        name = quote(image.canonical, safe=":@")
        if len(name) > _MAX_NAME:
            name = name[:100] + hashlib.sha256(name.encode()).hexdigest()
        return f"{name}-{self.arch}"


def locate(env: Mapping[str, str], cwd: str, site_path: str | None) -> str:
    """The user's store. `env` is only asked for single names."""
    named = env.get("EDF_IMAGESTORE")
    if named == "void":
        raise UserError("EDF_IMAGESTORE=void: images cannot be used without being stored yet")
    if named:
        return os.path.join(cwd, named)
    scratch = env.get("SCRATCH")
    if scratch:
        return os.path.join(cwd, scratch, ".edf_imagestore")
    if site_path:
        return site_path
    data, home = env.get("XDG_DATA_HOME", ""), env.get("HOME", "")
    if not data.startswith("/"):
        if not home.startswith("/"):
            raise UserError("no place for images: none of EDF_IMAGESTORE, SCRATCH and HOME is set")
        data = f"{home}/.local/share"
    return f"{data}/container-engine/images"


def architecture() -> str:
    """Of this machine, as OCI images name it."""
    machine = os.uname().machine
    return _ARCHITECTURES.get(machine, machine)
