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
from container_engine.plan.site_context import Offer
from container_engine.printing import output
from container_engine.submit.context import Context
from container_engine.submit.environment import offer_here


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
    offer = offer_here(context)
    rows = [*_cdi(offer, context), *_nodes(offer)]
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
        where = ", ".join(offer.site.cdi_dirs)
        output.folded(
            "no GPUs or other devices for containers on this host; on a compute node:"
            " srun --gpus=1 ce devices",
            0,
        )
        output.folded(f"(no CDI files in {where}, and no device node that a hook names)", 0)
    return 0


def _cdi(offer: Offer, context: Context) -> Iterator[Row]:
    site, home = offer.site, context.env.get("HOME", "")
    try:
        registry = Registry(directories(site.cdi_dirs, site.user_cdi_dir, home))
    except LaunchError as error:
        raise SiteError(f"devices: {error}") from None
    for name in registry.names():
        device = registry.find(name)
        if device is not None:
            yield Row(name, "cdi", device.file, offer.site.offers(name), opens=True)


def _nodes(offer: Offer) -> Iterator[Row]:
    seen: set[str] = set()
    for use in whole(offer.hooks, offer.machine):
        for edit in use.devices:
            for path in expand(edit.path):
                if path not in seen and is_device(path):
                    seen.add(path)
                    opens = os.access(path, os.R_OK) or os.access(path, os.W_OK)
                    yield Row(path, "device", f"hook {use.name}", offer.site.offers(path), opens)
