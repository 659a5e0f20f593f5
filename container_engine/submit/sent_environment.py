"""Environments in registries: an EDF and its lock as an artifact of two files.

`ce push --environment` sends one, `ce init --from` brings it. The images are not in it: the lock
names them by their digests.
"""

from __future__ import annotations

import tomllib
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.files import read_regular
from container_engine.edf.model import Edf
from container_engine.edf.show import as_written
from container_engine.images import lock_file
from container_engine.images.image_files import MOST_BESIDE, read_small
from container_engine.images.reference import RegistryImage, parse
from container_engine.images.store.store import architecture
from container_engine.oci.image import Manifest
from container_engine.site.model import SiteConfig
from container_engine.submit.context import Context
from container_engine.submit.environment import declared, load_with_origins, site_here
from container_engine.submit.stores import asking

TYPE = "application/vnd.container-engine.environment.v1+json"
_TYPES = ("application/toml", "application/json")
_LOCK_IT = "ce lock {} pins its image; then push"


class Sent(NamedTuple):
    """The texts of the two files of an environment."""

    edf: str
    lock: str

    def named(self, name: str) -> dict[str, tuple[str, bytes]]:
        """Return names, media types and contents, for a registry."""
        files = ((f"{name}.toml", self.edf), (f"{name}.lock", self.lock))
        return {
            file: (kind, text.encode("utf-8", "surrogateescape"))
            for (file, text), kind in zip(files, _TYPES, strict=True)
        }


def to_send(name: str, context: Context, settings: SiteConfig) -> Sent:
    """Return the files of an environment that starts elsewhere, too. Raise CeError.

    A single file is sent as it is, comments included; one with bases as one file without them.
    """
    loaded = load_with_origins(name, context)
    path = loaded.edf.files[-1]
    lock = lock_file.read(path)
    if lock is None:
        raise UserError("has no lock", _LOCK_IT.format(name), "image-lock", name=name)
    # before the lock is compared with the files, which an editor may write at any time
    if len(loaded.files) == 1:
        edf = read_regular(path, follow=True).decode()
    else:
        edf = as_written(loaded.edf, loaded.files, _checks(loaded.edf))
    moved = lock_file.differences(lock, declared(name, context, site_here(context)))
    if moved:
        why = f"its lock is not up to date: {'; '.join(moved)}"
        raise UserError(why, _LOCK_IT.format(name), "image-lock", name=name)
    for part in lock.parts:
        _check_is_elsewhere(part, name, context, settings)
    return Sent(edf, lock.to_json())


def _checks(edf: Edf) -> list[dict[str, Any]]:
    """Return the checks of an environment as its files have them, before expansion."""
    found = []
    for check, origin in edf.checks:
        written = tomllib.loads(read_regular(origin.file, follow=True).decode())["checks"]
        found += [one for one in written if one.get("name") == check.name]
    return found


def _check_is_elsewhere(
    part: lock_file.Part, name: str, context: Context, settings: SiteConfig
) -> None:
    """Raise UserError for a locked image that other hosts cannot get from a registry."""
    if not part.name:
        hint = f"ce push {part.image} REFERENCE; then name what that prints"
        raise UserError("its image is a file of this host", hint, "image-lock", name=name)
    for arch, pinned in part.images.items():
        image = parse(f"{part.name}@{pinned.digest}", "/")
        assert isinstance(image, RegistryImage)
        with asking(image, context, settings) as registry:
            registry.look_up(image, arch)


def received(image: RegistryImage, context: Context, settings: SiteConfig) -> Sent:
    """Return the environment that a reference leads to. Raise CeError for anything else."""
    with (
        asking(image, context, settings) as registry,
        TemporaryDirectory(prefix="ce-init-") as work,
    ):
        remote = registry.look_up(image, architecture(settings.image_architecture))
        config = Manifest.of_json(remote.manifest).config
        if config is None or config.media_type != TYPE or len(remote.blobs) != len(_TYPES):
            hint = f"an environment with this image: ce init NAME --image {image.name}"
            raise UserError("not an environment", hint, "image-format", name=image.name)
        if remote.size > MOST_BESIDE:
            why = f"its files are larger than {MOST_BESIDE >> 20} MiB"
            raise UserError(why, see="image-format", name=image.name)
        fetched = registry.copy(image, remote, work, f"{work}/blobs", lambda _bytes: None)
        edf, lock = map(read_small, fetched.layers)
    lock_file.parsed(lock, image.name)
    try:
        return Sent(edf.decode(), lock.decode())
    except UnicodeDecodeError:
        raise UserError("its file is not UTF-8", see="image-format", name=image.name) from None
