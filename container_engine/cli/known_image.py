"""What is known of an environment's image without fetching anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.cli.meaning import stored
from container_engine.cli.stores import stores
from container_engine.edf.model import Origin, Problem
from container_engine.errors import CeError
from container_engine.images.reference import FileImage, parse
from container_engine.images.resolve import from_file

if TYPE_CHECKING:
    from container_engine.cli.context import Context
    from container_engine.edf.model import Edf
    from container_engine.images.reference import Reference
    from container_engine.plan.model import Image
    from container_engine.site import SiteConfig


def known_image(edf: Edf, context: Context, site: SiteConfig) -> Image | None:
    """The image if its file can be read here, be it named or imported before; else None."""
    if not edf.image:
        return None
    try:
        path = _path(parse(edf.image, context.cwd), context, site)
        return None if path is None else from_file(edf.image, path, context.env).image
    except CeError:
        return None  # a launch says what is wrong; here nothing depends on it


def undecided_entrypoint(edf: Edf, image: Image | None) -> list[Problem]:
    """A warning where the image wants a program run first and no file says whether it shall."""
    if image is None or not image.entrypoint or edf.entrypoint is not None:
        return []
    origin = edf.image_origin or Origin(edf.name, 0)
    message = (
        f"the image has an entrypoint, {' '.join(image.entrypoint)}, and no file decides on it"
    )
    hint = "write entrypoint = true to run it before the tasks, or entrypoint = false"
    return [Problem("warning", origin.file, origin.line, "entrypoint", message, hint)]


def _path(reference: Reference, context: Context, site: SiteConfig) -> str | None:
    if isinstance(reference, FileImage):
        return reference.path
    found = stores(context, site).find(stored(reference, context, site))
    return None if found is None else found.path
