"""`ce store check|repair`: find or repair damage in the user's store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from container_engine.cli import output
from container_engine.cli.jobs import used_by_jobs
from container_engine.cli.progress import listener
from container_engine.errors import UserError
from container_engine.images.fetch.importing import unusable
from container_engine.images.store.check import Checker, repair
from container_engine.images.store.files import size_text
from container_engine.images.store.in_use import NOTHING
from container_engine.submit.prepare import site_config
from container_engine.submit.stores import own_store

if TYPE_CHECKING:
    import argparse

    from container_engine.images.store.check import Damage
    from container_engine.submit.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("check", "repair"),
        help="check reads everything; repair mends or removes what is damaged",
    )
    parser.add_argument(
        "-f", "--force", action="store_true", help="repair also what running jobs use"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, only damage")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    """Return 1 if a check finds damage, or a repair leaves some because jobs use it; else 0."""
    root = own_store(context, site_config(context)).root
    if not os.path.isdir(root):
        raise UserError("there is no store yet", "ce pull IMAGE makes one", name=root)
    told = listener(quiet=arguments.quiet)
    done, total = 0, 0

    def on_read(size: int) -> None:
        nonlocal done
        done += size
        told.far(root, "checking", done, total)

    found = left = 0
    is_repair = arguments.action == "repair"
    try:
        checker = Checker(root, on_read)
        total = checker.size()
        for damage in checker.check():
            found += 1
            told.clear()
            if is_repair:
                # queried for each: a check takes hours, and jobs begin meanwhile
                used = (
                    NOTHING if arguments.force or not damage.stamp else used_by_jobs(root, context)
                )
                why = used.why_not(damage.path) or repair(damage, used)
                if why:
                    left += 1
                    output.line(
                        f"left: {damage.path}: {damage.problem}; {why} (--force removes it)"
                    )
                    continue
            output.line(_line(damage, arguments.action))
    except OSError as error:
        raise unusable(root, error) from None
    told.clear()
    if not found and not arguments.quiet:
        output.line(f"{root}: nothing is wrong, {size_text(done)} read")
    return 1 if left or (found and not is_repair) else 0


def _line(damage: Damage, action: str) -> str:
    done = ""
    if action == "repair":
        done = "removed: " if damage.mend is None else "mended: "
    return f"{done}{damage.path}: {damage.problem}"
