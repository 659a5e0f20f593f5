"""Checks the site's OCI hooks and CDI files on this host, reading them as a launch does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.errors import LaunchError
from container_engine.base.toml_positions import Fault
from container_engine.node.devices.cdi import Directory, Registry
from container_engine.node.hooks.oci_hooks import OciHooks

if TYPE_CHECKING:
    from container_engine.site.model import SiteConfig


class SiteFiles(NamedTuple):
    """The number of hooks or devices found, or the fault for which a launch refuses all."""

    kind: str
    number: int
    fault: Fault | None


def site_files(settings: SiteConfig) -> Iterator[SiteFiles]:
    """Yield the OCI hooks, then the CDI devices. A missing directory counts as empty."""
    yield _read(
        "OCI hooks",
        lambda: len(OciHooks(settings.hooks_dirs, ()).hooks),
        "correct it, or take the file away: until then no container starts on this host",
    )
    places = [Directory(path, is_users=False) for path in settings.cdi_dirs]
    yield _read(
        "CDI devices",
        lambda: len(Registry(places).names()),
        "correct it, or take the file away: until then no launch on this host gets a CDI device",
    )


def _read(kind: str, count: Callable[[], int], remedy: str) -> SiteFiles:
    try:
        return SiteFiles(kind, count(), None)
    except LaunchError as failure:
        return SiteFiles(
            kind, 0, Fault(failure.name or failure.where or kind, failure.reason, remedy)
        )
