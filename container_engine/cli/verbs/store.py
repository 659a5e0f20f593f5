"""`ce store check|repair`: find or repair damage in the user's store."""

from __future__ import annotations

import argparse
import os
from typing import NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.text_layout import size_text
from container_engine.images.free_space import unusable
from container_engine.images.store.inventory import NOTHING, used_by_jobs
from container_engine.printing import output
from container_engine.printing.messages import listener
from container_engine.submit.context import Context, site_config
from container_engine.submit.stores import own_store
from container_engine.tools.store_check import Checker, Damage, repair


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        nargs="?",
        default="check",
        choices=("check", "repair"),
        help="check, the default, reads everything; repair rewrites or removes what is damaged",
    )
    parser.add_argument(
        "-f", "--force", action="store_true", help="repair also what running jobs use"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, only damage")
    parser.add_argument("--json", action="store_true", help="print JSON, and no progress")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    """Return 1 if a check finds damage, or a repair leaves some because jobs use it; else 0."""
    root = own_store(context, site_config(context)).root
    if not os.path.isdir(root):
        raise UserError("there is no store yet", "ce pull IMAGE makes one", name=root)
    progress = listener(quiet=arguments.quiet or arguments.json)
    done, total = 0, 0

    def on_read(size: int) -> None:
        nonlocal done
        done += size
        progress.far(root, "checking", done, total)

    found: list[_Found] = []
    is_repair = arguments.action == "repair"
    try:
        checker = Checker(root, on_read)
        total = checker.size()
        for damage in checker.check():
            progress.clear()
            why = _repaired(damage, root, arguments, context) if is_repair else None
            found.append(_Found(damage, _state(damage, why, is_repair=is_repair), why or ""))
            if not arguments.json:
                output.line(found[-1].line())
    except OSError as error:
        raise unusable(root, error) from None
    progress.clear()
    if arguments.json:
        damages = [one.as_json() for one in found]
        output.document({"store": root, "read": done, "damages": damages})
    elif not found and not arguments.quiet:
        output.line(f"{root}: nothing is wrong, {size_text(done)} read")
    left = [one for one in found if one.state == "left"]
    return 1 if left or (found and not is_repair) else 0


def _repaired(
    damage: Damage, root: str, arguments: argparse.Namespace, context: Context
) -> str | None:
    """Repair a damage; return why it was left as it is, or None.

    Slurm is asked each time which images jobs use: a check takes hours, and jobs begin meanwhile.
    """
    if damage.is_unread and not arguments.force:
        return "who can read it may find it sound"
    used = (
        NOTHING
        if arguments.force or not damage.stamp
        else used_by_jobs(root, context.env, context.uid)
    )
    return used.why_not(damage.path) or repair(damage, used)


def _state(damage: Damage, why: str | None, *, is_repair: bool) -> str:
    if not is_repair:
        return "found"
    if why:
        return "left"
    return "removed" if damage.mend is None else "repaired"


class _Found(NamedTuple):
    """A damage, what was done about it, and why it was left if it was."""

    damage: Damage
    state: str
    why: str

    def line(self) -> str:
        before = "" if self.state == "found" else f"{self.state}: "
        behind = f"; {self.why} (--force removes it)" if self.state == "left" else ""
        return f"{before}{self.damage.path}: {self.damage.problem}{behind}"

    def as_json(self) -> dict[str, str]:
        facts = {"path": self.damage.path, "problem": self.damage.problem}
        return {**facts, "state": self.state, "reason": self.why}
