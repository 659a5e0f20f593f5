"""`ce metrics`: count the starts of this cluster, for `ce trace`, `ce doctor` and Prometheus."""

from __future__ import annotations

import argparse
import glob
import time
from collections.abc import Sequence

from container_engine.base.errors import UserError
from container_engine.images.image_files import recorded_use
from container_engine.printing import messages, output
from container_engine.submit.context import Context, places
from container_engine.tools import prometheus_text, start_records

_MOST_IMAGES = 50


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Add the starts since the last call to the site's starts_file, from the traces of all"
        " users. For administrators, every few minutes."
    )
    parser.add_argument(
        "--traces", metavar="DIRECTORY", help="where the traces are; default: the site's trace_dir"
    )
    parser.add_argument(
        "--textfile", metavar="FILE.prom", help="also write it for Prometheus's node_exporter"
    )
    parser.add_argument(
        "--images",
        type=int,
        default=0,
        metavar="N",
        help=f"with medians of the N images with most starts, at most {_MOST_IMAGES}; default: 0",
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    site = places(context)
    if not site.starts_file:
        hint = "starts_file in the site's configuration: a file that all hosts can read"
        raise UserError("metrics: this site keeps no records of starts", hint)
    directory = arguments.traces or site.trace_dir
    if not directory.startswith("/"):
        raise UserError(
            "metrics: this site keeps traces in the users' homes",
            "trace_dir: one directory for all users; or --traces, with what a tracking_tool writes",
        )
    if not 0 <= arguments.images <= _MOST_IMAGES:
        raise UserError(f"--images: a number from 0 to {_MOST_IMAGES}")
    records = start_records.load(site.starts_file)
    update = start_records.Update(records, time.time())
    update.add_imports(_imports(site.image_stores))
    update.add(directory)
    start_records.write(site.starts_file, records)
    if arguments.textfile:
        prometheus_text.write(arguments.textfile, records, arguments.images)
    if update.unread:
        hint = f"run this where root can read {directory}"
        messages.say(f"ce: {len(update.unread)} steps cannot be read: {hint}\n")
    starts = records["starts"]
    output.line(
        f"{site.starts_file}: {starts['ok']} starts, {starts['failed']} failed,"
        f" {len(records['images'])} images, {len(records['nodes'])} nodes"
    )
    return 0


def _imports(stores: Sequence[str]) -> list[float]:
    """Return when the images of the stores were imported, in seconds since 1970."""
    found = (
        recorded_use(path)
        for store in stores
        for path in glob.iglob(f"{glob.escape(store)}/images/*.sqsh")
    )
    return [one.imported for one in found if one is not None]
