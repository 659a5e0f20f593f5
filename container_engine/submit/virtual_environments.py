"""Checks the virtual environments that an environment mounts or activates, before its launch.

Those of conda, too. An environment without one costs a look for its mark (`VENV_MARKS`) at each
mount. What is found out is written to no place: a launch with a cached plan does not ask again.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from container_engine.base import process
from container_engine.base.errors import CeError
from container_engine.edf.entries import activated, on_host
from container_engine.edf.model import Edf, Mount, Origin, Problem
from container_engine.edf.names import VENV_MARKS
from container_engine.images import squashfs
from container_engine.images.confine.cage import OWN_NAMESPACES
from container_engine.plan.model import LaunchPlan
from container_engine.submit.context import Context

CODE = "virtual-environment"
_TIMEOUT_S = 300
_MOST_FILES = 1 << 20  # more are data, and take long to look through
_ACTIVATE = "bin/activate"
_REMOUNT = "mount it where it was made; ce pack --venv makes one for any place"


class Found(NamedTuple):
    """A virtual environment: where it is in the container, and the line that brings it there.

    `key` is that of the line, and `is_activated` whether a start-up line activates it.
    """

    target: str
    origin: Origin
    key: str
    is_activated: bool


def problems(
    edf: Edf, candidates: Sequence[Mount], plan: LaunchPlan, context: Context
) -> tuple[list[Problem], list[str]]:
    """Return what is wrong with virtual environments, and the paths that this depends on.

    `candidates` are the mounts of `edf` that have the mark of one, or are files that may have it.
    """
    looked_at: list[str] = []
    found = [
        problem
        for one in _found(edf, candidates, looked_at, context)
        for problem in _problems(one, plan, context)
    ]
    return found, looked_at


def _problems(one: Found, plan: LaunchPlan, context: Context) -> Iterator[Problem]:
    """Yield the gravest problem, in one line."""
    if not os.path.exists(f"{context.libexec}/check_venv"):  # a wheel on a laptop
        message = f"the virtual environment {one.target} is compared with the image only at launch"
        yield one.origin.warning(one.key, message, "here is no installation of the engine")
        return
    try:
        said = ask(one.target, plan, context)
    except CeError as error:
        message = f"the virtual environment {one.target} is not compared with the image: {error}"
        yield one.origin.warning(one.key, message, error.hint)
        return
    named = f"the virtual environment {one.target} does not fit"
    # one that is only mounted may be there to be made again
    fault = one.origin.error if one.is_activated else one.origin.warning
    moved = {script: prefix for prefix, script in said["moved"].items()}
    lost, script = moved.get(_ACTIVATE), next(iter(moved), "")
    if said["refusals"]:
        message, hint = said["refusals"][0]
        yield fault(one.key, f"{named}: {message}", hint, CODE)
    elif lost is not None and one.is_activated:
        # the shell would go on, with the image's Python
        yield one.origin.error(one.key, f"{named}: {_moved(_ACTIVATE, lost)}", _REMOUNT, CODE)
    elif said["warnings"]:
        message, hint = said["warnings"][0]
        yield one.origin.warning(one.key, f"{one.target}: {message}", hint, CODE)
    elif script:
        message = f"{one.target}: {_moved(script, moved[script])}"
        yield one.origin.warning(one.key, message, _REMOUNT, CODE)


def _moved(script: str, prefix: str) -> str:
    return f"its {script} is for '{prefix}', which is not in this container"


def _found(
    edf: Edf, candidates: Sequence[Mount], looked_at: list[str], context: Context
) -> Iterator[Found]:
    named = {os.path.normpath(path): origin for path, origin in activated(edf.startup)}
    for mount in candidates:
        if not (isinstance(mount.source, str) and isinstance(mount.target, str)):
            continue
        is_activated = named.pop(mount.target, None) is not None
        if mount.kind == "squashfs":
            looked_at.append(mount.source)
            if not _is_packed(mount.source, context):
                continue
        yield Found(mount.target, mount.origin, "mounts", is_activated)
    for target, origin in named.items():
        place = on_host(target, edf.mounts)
        marks = [path for mark in VENV_MARKS.values() if os.path.exists(path := f"{place}/{mark}")]
        if marks:
            looked_at += marks
            yield Found(target, origin, "startup", is_activated=True)


def _is_packed(path: str, context: Context) -> bool:
    """Check whether the SquashFS file has a virtual environment; errors are a launch's to say."""
    try:
        if squashfs.check(path).files > _MOST_FILES:
            return False
        marks = tuple(VENV_MARKS.values())
        words = ["-ls", "-max-depth", "1", "-d", ""]
        listed = squashfs.unsquashfs(words, path, marks, context.tools_env, _TIMEOUT_S, 1 << 16)
    except CeError:
        return False
    return any(f"/{mark}".encode() in listed.splitlines() for mark in VENV_MARKS.values())


def ask(
    target: str, plan: LaunchPlan, context: Context, place: str | None = None
) -> dict[str, Any]:
    """Return what build/check_venv.py says of the virtual environment at `target`.

    `place` is where it is on this host if no mount has it. Raise CeError.
    """
    mounts = [one for one in plan.mounts if isinstance(one.source, str) and one.kind != "tmpfs"]
    if place is not None:
        mounts = [one for one in mounts if one.target != target]
    packed = [(one.target, one.source) for one in mounts if one.kind == "squashfs"]
    binds = [(one.target, one.source) for one in mounts if one.kind == "bind"]
    values = {entry.name: entry.value for entry in plan.env}
    name = "LD_LIBRARY_PATH"
    ours, theirs = values.get(name, ""), plan.image.env.get(name, "")
    parts = ours if isinstance(ours, tuple) else (ours or "",)
    library_path = "".join(part if isinstance(part, str) else theirs for part in parts)
    with tempfile.TemporaryDirectory(prefix="ce-venv-") as work:
        request = {
            "server": f"{context.libexec}/ce-image",
            "work": work,
            "images": [plan.image.path, *(part.path for part in plan.image.above)],
            "packed": [pair for pair in packed if os.path.isfile(str(pair[1]))],
            "binds": [*binds, *([(target, place)] if place is not None else [])],
            "library_path": library_path if name in values else theirs,
            "target": target,
        }
        argv = [*OWN_NAMESPACES, f"{context.libexec}/check_venv", json.dumps(request)]
        found: dict[str, Any] = json.loads(process.output(argv, context.tools_env, _TIMEOUT_S))
    return found
