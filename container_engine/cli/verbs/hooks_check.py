"""`ce hooks check`: report every fault of a catalog, including conflicts between hooks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from container_engine.base import hook_code
from container_engine.base.errors import CeError
from container_engine.base.toml_positions import Fault
from container_engine.catalog.load import Catalog
from container_engine.plan.hooks import overlaps, whole
from container_engine.plan.model import HookUse
from container_engine.printing import messages, output
from container_engine.submit.context import Context, site_config
from container_engine.submit.site_offer import catalog, machine
from container_engine.tools.doctor.site import site_files


def check(directories: Sequence[str], context: Context, *, as_json: bool) -> int:
    """Print all faults and return 1 if there are any, else 0.

    A fault is whatever makes a launch refuse the catalog, or a conflict between two hooks.
    """
    settings = site_config(context)
    chosen = [os.path.join(context.cwd, path) for path in directories] or settings.hook_catalog
    found = catalog((hook_code.directory(context.prefix), *chosen))
    absent = [path for path in chosen if directories and not os.path.isdir(path)]
    faults = [*(Fault(path, "is not a directory") for path in absent), *found.faults]
    if not faults:
        uses = whole(found.hooks, machine(settings))
        faults += [*_overlaps(found, uses), *_programs(uses)]
    if not directories:
        faults += [files.fault for files in site_files(settings) if files.fault is not None]
    if as_json:
        listed = [fault._asdict() for fault in faults]
        output.document({"valid": not faults, "faults": listed})
    else:
        for fault in faults:
            messages.say(messages.of_error(CeError(str(fault), fault.hint)))
        if not faults:
            own = [hook for hook in found.hooks.values() if hook.file.startswith(_below(chosen))]
            where = ", ".join(chosen) or "no directory of the site"
            output.line(f"{len(found.hooks)} hooks, {len(own)} of them in {where}: no fault")
    return int(bool(faults))


def _below(directories: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{os.path.realpath(path)}/" for path in directories)


def _overlaps(found: Catalog, uses: Sequence[HookUse]) -> Iterator[Fault]:
    for overlap in overlaps(uses):
        one, other = found.hooks[overlap.one], found.hooks[overlap.other]
        if one.name in other.data.conflicts or other.name in one.data.conflicts:
            continue
        message = f"edits {overlap.what}, as the hook '{one.name}' does in another way"
        yield Fault(other.file, message, f'write conflicts = ["{one.name}"]')


def _programs(uses: Sequence[HookUse]) -> Iterator[Fault]:
    for use in uses:
        for hook in use.hooks:
            if not os.access(hook.path, os.X_OK):
                yield Fault(use.file, f"hooks: {hook.path} is not a program that can run here")
