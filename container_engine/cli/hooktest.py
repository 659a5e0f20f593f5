"""`ce hooks test NAME`: whether this node has what a hook puts into containers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from container_engine.launch.hooks.pattern import expand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.catalog.load import Hook
    from container_engine.plan.model import HookUse


def test(hook: Hook, use: HookUse) -> int:
    """One line for each thing of the host that the hook asks for; 1 if a needed one is missing."""
    failed = False
    for what, pattern, optional in _wanted(use):
        found = expand(pattern)
        failed |= not found and not optional
        verdict = "ok" if found else "absent" if optional else "missing"
        shown = ", ".join(found) if found and found != [pattern] else ""
        sys.stdout.write(f"{verdict:<8} {what:<8} {pattern}{': ' if shown else ''}{shown}\n")
    if not list(_wanted(use)):
        sys.stdout.write(f"{hook.name} needs nothing of the node that its data name\n")
    return int(failed)


def _wanted(use: HookUse) -> Iterator[tuple[str, str, bool]]:
    """What, where, and whether the hook can do without. What the node fills in is left out."""
    for device in use.devices:
        yield "device", device.path, device.optional
    for mount in use.mounts:
        yield "mount", mount.source, mount.optional
    for library in use.libraries:
        for file in library.files:
            yield "library", file, library.optional
    for hook in use.hooks:
        if not os.access(hook.path, os.X_OK):
            yield "program", hook.path, False
