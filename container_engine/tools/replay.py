"""Write the environment of a kept plan, and find what is not as it was when its step started.

The plan is used, whatever has become of the files that it was made of. What the site adds to
every container is left out: a launch adds it again, as it is now.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from container_engine import __version__
from container_engine.base.files import files_of
from container_engine.base.run_check import ListedCheck
from container_engine.edf.model import Annotation, Edf, EnvEntry, Origin
from container_engine.images.image_files import known_digest
from container_engine.images.reference import RegistryImage, parse
from container_engine.plan.build import build
from container_engine.submit.context import site_config
from container_engine.submit.environment import site_here
from container_engine.submit.image_names import stored
from container_engine.submit.known_image import missing_files
from container_engine.submit.refused import RefusedError
from container_engine.submit.stores import stores
from container_engine.tools.difference import Difference, of_plans

if TYPE_CHECKING:
    from container_engine.base.secrecy import Secrecy
    from container_engine.plan.model import LaunchPlan, Part
    from container_engine.submit.context import Context

_OF_SITE = "site: "  # begins the origins of its entries


def environment(plan: LaunchPlan, name: str) -> Edf:
    """Return an environment that `plan` follows from, without the variables of its files.

    Images are named by their digests: a tag may have moved.
    """
    base, *above = [(_pinned(part), Origin(part.origin, 0)) for part in _images(plan)]
    return Edf(
        name=name,
        files=(name,),
        image=base[0],
        image_origin=Origin(name, 0),
        above=tuple(above),
        workdir=plan.workdir if _is_written(plan.workdir_from) else None,
        workdir_origin=Origin(plan.workdir_from, 0),
        writable=plan.writable,
        writable_origin=Origin(plan.writable_from, 0),
        entrypoint=bool(plan.entrypoint) if _is_written(plan.entrypoint_from) else None,
        entrypoint_origin=Origin(plan.entrypoint_from, 0),
        mounts=tuple(mount for mount in plan.mounts if _is_written(str(mount.origin))),
        devices=tuple(device for device in plan.devices if _is_written(str(device.origin))),
        env=tuple(
            EnvEntry(entry.name, entry.value or "", Origin(entry.origin, 0))
            for entry in plan.env
            if _is_written(entry.origin)
        ),
        annotations=tuple(
            Annotation(key, value, Origin(plan.annotations_from.get(key, ""), 0))
            for key, value in plan.annotations.items()
        ),
        startup=tuple((one.line, Origin(one.origin, 0)) for one in plan.startup),
        checks=tuple(
            (ListedCheck(**run.model_dump(exclude={"origin"})), Origin(run.origin, 0))
            for run in plan.runs
            if _is_written(run.origin)
        ),
    )


def _is_written(origin: str) -> bool:
    return not origin.startswith(_OF_SITE) and origin not in ("default", "the image")


def _images(plan: LaunchPlan) -> tuple[Part, ...]:
    return (plan.image, *plan.image.above)


def _pinned(part: Part) -> str:
    if not part.digest:
        return part.path
    return part.name if "@sha256:" in part.name else f"{part.name}@{part.digest}"


def changes(
    plan: LaunchPlan, edf: Edf, since: float, context: Context, secrecy: Secrecy
) -> list[Difference]:
    """Return what has changed `since` a step started with `plan`, in seconds since 1970.

    Nothing is fetched. Raise CeError, among them RefusedError if the site refuses `edf` now.
    """
    site_context = site_here(context)
    now = build(edf, plan.image, site_context, __version__)
    if now.plan is None:
        raise RefusedError(now.problems)
    before, after = (json.loads(one.to_json()) for one in (plan, now.plan))
    found = of_plans(before, after, secrecy)
    known = stores(context, site_context.site)
    for part in _images(plan):
        image = parse(_pinned(part), context.cwd)
        if isinstance(image, RegistryImage) and known.find(image) is None:
            found.append(Difference("-", "image", f"{image.name}: in no store, to import again"))
    # where an image is a file, it is among these
    found += [
        Difference("-", one.key, one.message, one.file) for one in missing_files(edf, context)
    ]
    return found + [
        Difference("~", "file", f"written {_clock(when)}", path, f"as of {_clock(since)}")
        for path, when in _times(plan)
        if when > since
    ]


def moved(plan: LaunchPlan, context: Context) -> Iterator[str]:
    """Yield a sentence for each image whose name now stands for another one, here."""
    site = site_config(context)
    for part in _images(plan):
        image = parse(part.name, context.cwd)
        if part.digest and isinstance(image, RegistryImage):
            known = stores(context, site).find(stored(image, context, site))
            if known is not None and known.ref.digest != part.digest:
                yield f"'{part.name}' is {known.ref.digest} now: the step's image is used"


def _times(plan: LaunchPlan) -> Iterator[tuple[str, float]]:
    """Yield the files that the plan names, with the times of their last change of any kind.

    A package or a copy may set the time of modification to what it likes. A file of which the plan
    has the digest has not changed if it still has it.
    """
    paths = [p.path for p in _images(plan) if not p.digest and _is_other(p)]
    paths += [str(mount.source) for mount in plan.mounts if mount.kind == "squashfs"]
    for hook in plan.hooks:
        paths += [*files_of(os.path.dirname(hook.file)), *(one.path for one in hook.hooks)]
    paths += [run.command[0] for run in plan.runs if run.program == "host"]
    for path in dict.fromkeys(paths):
        if path.startswith("/") and os.path.exists(path):
            yield path, os.stat(path).st_ctime


def _is_other(part: Part) -> bool:
    return not part.content or known_digest(part.path) != part.content


def _clock(when: float) -> str:
    return time.strftime("%d %b %Y %H:%M:%S", time.localtime(when))
