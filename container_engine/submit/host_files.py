"""Finds the files that an EDF names and that do not exist on this host."""

from __future__ import annotations

import os
from collections.abc import Iterator

from container_engine.base.errors import LaunchError
from container_engine.edf.entries import packed_as_file
from container_engine.edf.model import Edf, Origin, Problem
from container_engine.edf.names import SQUASHFS_SUFFIXES
from container_engine.node.container.checks import (
    DEVICE,
    SOURCE,
    absence,
    check_image,
    unusable,
)
from container_engine.submit.context import Context
from container_engine.submit.known_image import unusable_image


def missing_files(edf: Edf, context: Context) -> list[Problem]:
    """Return an error, with the text that nodes print, for each file that this host does not have.

    Paths with variables of the node are left out, as are mounts hidden by another mount.
    """
    problems = unusable_image(edf, context, also_absent=True)
    for key, kind, path, origin in _files(edf):
        if reason := absence(path):
            error = unusable(kind, path, reason)
            problems.append(origin.error(key, error.message, error.hint, error.see))
    return problems


def packed_files(edf: Edf) -> list[Problem]:
    """Return a warning for each mount of a SquashFS file as a plain one that its name hides."""
    return [
        mount.origin.warning("mounts", *packed_as_file(mount))
        for mount in edf.mounts
        if mount.kind == "bind"
        and isinstance(mount.source, str)
        and not mount.source.endswith(SQUASHFS_SUFFIXES)
        and _is_squashfs(mount.source)
    ]


def _is_squashfs(path: str) -> bool:
    """Check whether this host has such a file; False if it cannot be read."""
    try:
        if os.path.isfile(path):
            check_image(path)
            return True
    except LaunchError:
        pass
    return False


def _files(edf: Edf) -> Iterator[tuple[str, str, str, Origin]]:
    for mount in edf.mounts:
        if (
            mount.kind != "tmpfs"
            and isinstance(mount.source, str)
            and "nofail" not in mount.options
        ):
            yield "mounts", SOURCE, mount.source, mount.origin
    for device in edf.devices:
        if not device.is_cdi and isinstance(device.name, str):
            yield "devices", DEVICE, device.name, device.origin
