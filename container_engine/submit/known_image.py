"""Finds out about an environment's image and files on this host, without fetching anything."""

from __future__ import annotations

import os
from collections.abc import Iterator

from container_engine import __version__
from container_engine.base.errors import CeError, LaunchError, UserError
from container_engine.edf.entries import packed_as_file
from container_engine.edf.model import Edf, Origin, Problem
from container_engine.edf.names import SQUASHFS_SUFFIXES
from container_engine.images.reference import FileImage, Reference, parse
from container_engine.images.resolve import from_file, stacked
from container_engine.node.container.checks import (
    DEVICE,
    SOURCE,
    absence,
    check_image,
    unusable,
)
from container_engine.plan.build import build
from container_engine.plan.model import Image
from container_engine.plan.site_context import SiteContext
from container_engine.site.model import SiteConfig
from container_engine.submit.context import Context
from container_engine.submit.environment import on_host, unfit_environments
from container_engine.submit.image_names import stored
from container_engine.submit.stores import admit_names, rules, stores


def judged(edf: Edf, context: Context, site_context: SiteContext) -> list[Problem]:
    """Return the further problems of a launch of `edf`, as far as this host knows its image.

    The list is empty for an EDF without an image, which is a base of others.
    """
    if edf.image is None:
        return []
    if edf.image == "":
        return [on_host(edf)]
    image = known_image(edf, context, site_context.site)
    built = build(edf, image, site_context, __version__)
    refusals = refused_image(edf, context, site_context.site)
    if image is None and not refusals:
        refusals = unusable_image(edf, context)
    # a launch asks only for what else is right
    fitting = unfit_environments(edf, built.plan, context)[0] if built.plan else ()
    return [*refusals, *undecided_entrypoint(edf, image), *built.problems, *fitting]


def known_image(edf: Edf, context: Context, site: SiteConfig) -> Image | None:
    """Return the image if its files, named or already imported, are readable here; else None."""
    parts = []
    try:
        for name, _origin in edf.images:
            path = _path(parse(name, context.cwd), context, site)
            if path is None:
                return None
            parts.append(from_file(name, path, context.env))
    except CeError:
        return None  # a launch reports the error
    return stacked(parts).image if parts else None


def unusable_image(edf: Edf, context: Context, *, also_absent: bool = False) -> list[Problem]:
    """Return the problems of files on this host that are not images, worded as in a launch.

    A file that this host does not have is one only if `also_absent`: the submit host may have it.
    """
    problems = []
    for name, origin in edf.images:
        reference = parse(name, context.cwd)
        if isinstance(reference, FileImage) and (also_absent or os.path.exists(reference.path)):
            try:
                from_file(name, reference.path, context.env)
            except UserError as error:
                place = origin or edf.image_place
                problems.append(place.error("image", error.message, error.hint, error.see))
    return problems


def refused_image(edf: Edf, context: Context, site: SiteConfig) -> list[Problem]:
    """Return the site's refusals of the images' names, worded as in a launch."""
    return [
        problem
        for name, origin in edf.images
        for problem in _refused(name, origin or edf.image_place, context, site)
    ]


def _refused(name: str, origin: Origin, context: Context, site: SiteConfig) -> list[Problem]:
    wanted, reference = rules(context, site), parse(name, context.cwd)
    try:
        if isinstance(reference, FileImage):
            wanted.admit(reference._replace(path=os.path.realpath(reference.path)))
            wanted.admit_place(name, reference.path, site.image_stores)
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
            wanted.admit_size(name, os.path.getsize(path))
    except UserError as error:
        # a launch reports all other errors, such as a missing store
        problem = origin.error("image", error.message, error.hint, error.see)
        return [problem] if error.see == "image-policy" else []
    return []


def undecided_entrypoint(edf: Edf, image: Image | None) -> list[Problem]:
    """Return a warning if the image has an entrypoint and no file sets `entrypoint`."""
    if image is None or not image.entrypoint or edf.entrypoint is not None:
        return []
    entrypoint = " ".join(image.entrypoint)
    message = f"the image has an entrypoint, {entrypoint}, and no file says whether to run it"
    hint = "write entrypoint = true to run it before the tasks, or entrypoint = false"
    return [edf.image_place.warning("entrypoint", message, hint)]


def _path(reference: Reference, context: Context, site: SiteConfig) -> str | None:
    if isinstance(reference, FileImage):
        return reference.path
    found = stores(context, site).find(stored(reference, context, site))
    return None if found is None else found.path


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
