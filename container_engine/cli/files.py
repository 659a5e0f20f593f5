"""The files of this host that an EDF names: which of them are not there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from container_engine.edf.model import Problem
from container_engine.edf.source import reason
from container_engine.images.reference import FileImage, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Edf, Origin

_KEY_FILES = ("com.hooks.ssh.authorize_ssh_key",)


def missing_files(edf: Edf, cwd: str) -> list[Problem]:
    """An error for each file that a launch on this host would not find.

    What depends on variables of the node is left out, as is a mount that hides behind another.
    """
    problems: list[Problem] = []
    for key, what, path, origin in _files(edf, cwd):
        try:
            os.stat(path)
        except (OSError, ValueError) as error:
            message = f"{what} '{path}': {reason(error)}"
            problems.append(
                Problem("error", origin.file, origin.line, key, message, see="mount-source-missing")
            )
    return problems


def _files(edf: Edf, cwd: str) -> Iterator[tuple[str, str, str, Origin]]:
    if edf.image and edf.image_origin:
        image = parse(edf.image, cwd)
        if isinstance(image, FileImage):
            yield "image", "image", image.path, edf.image_origin
    for mount in edf.mounts:
        if mount.kind != "tmpfs" and isinstance(mount.source, str):
            yield "mounts", "source", mount.source, mount.origin
    for device in edf.devices:
        if not device.is_cdi and isinstance(device.name, str):
            yield "devices", "device", device.name, device.origin
    for entry in edf.annotations:
        if entry.key in _KEY_FILES:
            yield f"annotations.{entry.key}", "file", entry.value, entry.origin
