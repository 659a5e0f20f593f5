"""Finds out about an environment's image without fetching anything."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from container_engine.edf.model import Origin, Problem
from container_engine.errors import CeError, UserError
from container_engine.images.reference import FileImage, parse
from container_engine.images.resolve import from_file
from container_engine.submit.short_name import stored
from container_engine.submit.stores import admit_names, rules, stores

if TYPE_CHECKING:
    from container_engine.edf.model import Edf
    from container_engine.images.reference import Reference
    from container_engine.plan.model import Image
    from container_engine.site import SiteConfig
    from container_engine.submit.context import Context


def known_image(edf: Edf, context: Context, site: SiteConfig) -> Image | None:
    """Return the image if its file, named or already imported, is readable here; else None."""
    if not edf.image:
        return None
    try:
        path = _path(parse(edf.image, context.cwd), context, site)
        return None if path is None else from_file(edf.image, path, context.env).image
    except CeError:
        return None  # a launch reports the error


def refused_image(edf: Edf, context: Context, site: SiteConfig) -> list[Problem]:
    """Return the site's refusal of the image's name, worded as in a launch."""
    if not edf.image:
        return []
    wanted, reference = rules(context, site), parse(edf.image, context.cwd)
    try:
        if isinstance(reference, FileImage):
            wanted.admit(reference._replace(path=os.path.realpath(reference.path)))
            wanted.admit_place(edf.image, reference.path, site.image_stores)
            path: str | None = reference.path
        else:
            image = stored(reference, context, site)
            found = stores(context, site).find(image)
            is_local = found is not None and found.ref.origin
            wanted.admit_local(image) if is_local else wanted.admit(image)
            path = None if found is None else found.path
            wanted.admit_place(image.name, path, site.image_stores)
        if path is not None and os.path.exists(path):
            admit_names(context, path)
            wanted.admit_size(edf.image, os.path.getsize(path))
    except UserError as error:
        # a launch reports all other errors, such as a missing store
        return [image_problem(edf, error)] if error.see == "image-policy" else []
    return []


def image_problem(edf: Edf, error: UserError) -> Problem:
    """Return the error as a problem at the line that names the image."""
    origin = edf.image_origin or Origin(edf.own_file, 0)
    return Problem(
        *("error", origin.file, origin.line, "image", error.message, error.hint), see=error.see
    )


def undecided_entrypoint(edf: Edf, image: Image | None) -> list[Problem]:
    """Return a warning if the image has an entrypoint and no file sets `entrypoint`."""
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
