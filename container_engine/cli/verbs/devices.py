"""`ce devices`: list what this node offers for the `devices` key of an environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import NamedTuple

from container_engine.base.errors import LaunchError, SiteError
from container_engine.node.devices.cdi import Registry, directories
from container_engine.node.pattern import expand, is_device
from container_engine.plan.hooks import whole
from container_engine.plan.site_context import SiteContext
from container_engine.printing import output
from container_engine.submit.context import Context
from container_engine.submit.environment import site_here


class Row(NamedTuple):
    """A device: its name in an EDF, its kind, and the CDI file or hook that defines it.

    `allowed`: the site offers it to users. `opens`: this user can open it.
    """

    name: str
    kind: str
    source: str
    allowed: bool
    opens: bool


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "List the CDI devices of this node and the device nodes that hooks of this site know."
        " Run it where containers run: srun ce devices"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    site_context = site_here(context)
    rows = [*_cdi(site_context, context), *_nodes(site_context)]
    if arguments.json:
        output.document({"devices": [row._asdict() for row in rows]})
        return 0
    shown = []
    for row in rows:
        notes = [] if row.allowed else ["not for users at this site"]
        notes += [] if row.opens else ["you may not open it"]
        suffix = f"  ({', '.join(notes)})" if notes else ""
        shown.append((row.kind, row.name, f"{row.source}{suffix}"))
    if shown:
        output.table(shown)
    else:
        where = ", ".join(site_context.site.cdi_dirs)
        output.folded(
            "no GPUs or other devices for containers on this host; on a compute node:"
            " srun --gpus=1 ce devices",
            0,
        )
        output.folded(f"(no CDI files in {where}, and no device node that a hook names)", 0)
    return 0


def _cdi(site_context: SiteContext, context: Context) -> Iterator[Row]:
    site, home = site_context.site, context.env.get("HOME", "")
    try:
        found = Registry(directories(site.cdi_dirs, site.user_cdi_dir, home)).read()
    except LaunchError as error:
        raise SiteError(f"devices: {error}") from None
    for name, device in sorted(found.items()):
        yield Row(name, "cdi", device.file, site_context.site.offers(name), opens=True)


def _nodes(site_context: SiteContext) -> Iterator[Row]:
    seen: set[str] = set()
    for use in whole(site_context.hooks, site_context.machine):
        for edit in use.devices:
            for path in expand(edit.path):
                if path not in seen and is_device(path):
                    seen.add(path)
                    opens = os.access(path, os.R_OK) or os.access(path, os.W_OK)
                    yield Row(
                        path, "device", f"hook {use.name}", site_context.site.offers(path), opens
                    )
