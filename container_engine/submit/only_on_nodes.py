"""Decides whether an image of an option is one that only the nodes have, as a path there."""

from __future__ import annotations

import os

from container_engine.base.errors import UserError
from container_engine.edf.model import Edf
from container_engine.images import squashfs
from container_engine.images.reference import FileImage, parse
from container_engine.images.resolve import Resolved
from container_engine.images.squashfs import DEFAULT_PATH
from container_engine.plan.model import Image
from container_engine.site.model import Policy, SiteConfig
from container_engine.submit.context import Context
from container_engine.submit.stores import rules

_OPTION = "--container-image"
_SEE = "image-file-not-found"


def image_of_nodes(edf: Edf, context: Context, site: SiteConfig) -> Resolved | None:
    """Return the image if an option names a file that this host does not have, else None.

    A file of a similar name on this host suggests a mistake: then the result is None, too. Raise
    UserError if this host needs the image's file.
    """
    if not edf.has_image_of_option:
        return None
    reference = parse(edf.image or "", context.cwd)
    if not isinstance(reference, FileImage) or not _is_absent(reference.path):
        return None
    if squashfs.similar(reference.path) is not None:
        return None
    _refuse_if_needed_here(edf, reference, context, site)
    image = Image(
        path=reference.path,
        name=reference.name,
        env={"PATH": DEFAULT_PATH},
        source="the file on each node",
        on_nodes=True,
    )
    notice = f"{_OPTION}: this host has no '{reference.path}': each node looks for it"
    return Resolved(image, (notice,), (reference.path,))


def _is_absent(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False  # the error is reported as that of any other file
    return False


def _refuse_if_needed_here(edf: Edf, image: FileImage, context: Context, site: SiteConfig) -> None:
    """Raise UserError if a rule of the site, or the entrypoint, needs the file on this host."""
    wanted = rules(context, site)
    why = ""
    if wanted.policy.model_copy(update={"mount_sources": ()}) != Policy():
        why = "the site has rules for images, which are checked where you submit"
    elif site.entrypoint if edf.entrypoint is None else edf.entrypoint:
        why = "its entrypoint is read where you submit"
    if why:
        hint = "put it where this host and the nodes have it"
        raise UserError(f"no such file on this host, and {why}", hint, _SEE, name=image.path)
