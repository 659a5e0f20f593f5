"""Finds the files that an EDF names and that do not exist on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.edf.model import Origin, Problem
from container_engine.errors import UserError
from container_engine.images.reference import FileImage, parse
from container_engine.images.resolve import from_file
from container_engine.node.container.checks import DEVICE, SOURCE, absence, unusable
from container_engine.submit.known_image import image_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Edf
    from container_engine.submit.context import Context


def missing_files(edf: Edf, context: Context) -> list[Problem]:
    """Return an error, with the text that nodes print, for each file that this host does not have.

    Paths with variables of the node are left out, as are mounts hidden by another mount.
    """
    problems = _of_image(edf, context)
    for key, kind, path, origin in _files(edf):
        if reason := absence(path):
            error = unusable(kind, path, reason)
            message, hint = error.message, error.hint
            problems.append(
                Problem("error", origin.file, origin.line, key, message, hint, see=error.see)
            )
    return problems


def _of_image(edf: Edf, context: Context) -> list[Problem]:
    problems = []
    for name, origin in edf.images:
        image = parse(name, context.cwd)
        if not isinstance(image, FileImage):
            continue
        try:
            from_file(image.name, image.path, context.env)
        except UserError as error:
            problems.append(image_problem(origin or Origin(edf.own_file, 0), error))
    return problems


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
