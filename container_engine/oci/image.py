"""Documents of the OCI image specification, as far as the engine reads them.

Unknown keys are allowed there. Docker's images of schema 2 have the same keys.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from container_engine.base.model import Array, Excerpt
from container_engine.oci.architecture import KNOWN, architecture_named


class Platform(Excerpt):
    """The machine that an image is for."""

    architecture: str | None = None
    os: str | None = None
    variant: str | None = None

    @property
    def named(self) -> str:
        """Return the architecture as the specification names it, "" if it names none."""
        name = architecture_named(self.word)
        return name if name in KNOWN else ""

    @property
    def word(self) -> str:
        return (self.architecture or "").strip()

    @property
    def is_told(self) -> bool:
        return self.word.lower() not in {"", "unknown"}

    @property
    def system(self) -> str:
        """Return the operating system, which nearly always is Linux where none is stated."""
        return (self.os or "").strip().lower() or "linux"

    @property
    def shown(self) -> str:
        """Return the platform for a message: the architecture, with any system but Linux."""
        name = self.named or self.word
        return name if self.system == "linux" else f"{self.system}/{name}".rstrip("/")


class Descriptor(Excerpt):
    """A document or layer that another document names by its digest."""

    media_type: Annotated[str, Field(alias="mediaType")] = ""
    digest: str
    size: Annotated[int, Field(ge=0)]
    platform: Platform | None = None
    annotations: dict[str, str] | None = None

    @property
    def tag(self) -> str:
        """Return the name in a layout, "" for none."""
        return (self.annotations or {}).get("org.opencontainers.image.ref.name", "")

    @property
    def place(self) -> Platform:
        return self.platform or Platform()

    @property
    def is_index(self) -> bool:
        return "index" in self.media_type or "manifest.list" in self.media_type

    @property
    def is_image(self) -> bool:
        """Check that it can be an image: attestations have the architecture `unknown`."""
        return self.place.architecture != "unknown"


class Index(Excerpt):
    """An index, of which layouts have one, too."""

    manifests: Array[Descriptor] = ()


class Manifest(Excerpt):
    """A manifest, or the index that a registry has in its place, which alone has `manifests`."""

    config: Descriptor | None = None
    layers: Array[Descriptor] = ()
    manifests: Array[Descriptor] | None = None


class Execution(Excerpt):
    """The `config` of a configuration: what a container runs where nobody says anything else."""

    env: Annotated[Array[str] | None, Field(alias="Env")] = None
    entrypoint: Annotated[Array[str] | None, Field(alias="Entrypoint")] = None
    cmd: Annotated[Array[str] | None, Field(alias="Cmd")] = None
    workdir: Annotated[str | None, Field(alias="WorkingDir")] = None


class RootFs(Excerpt):
    diff_ids: Array[str] | None = None


class History(Excerpt):
    created_by: str = ""
    empty_layer: bool = False


class Config(Excerpt):
    """The configuration of an image."""

    config: Execution | None = None
    rootfs: RootFs | None = None


class ConfigWithHistory(Config):
    """The same for those who are curious: a container starts whatever its image's history says."""

    history: Array[History] | None = None


class Outline(Platform):
    """A configuration's platform, and what tells it from the configuration of an artifact."""

    config: dict[str, Any] | None = None
    rootfs: dict[str, Any] | None = None
