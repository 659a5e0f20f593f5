"""`ce store check|repair`: is the user's store as it should be?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.cli.prepare import site_config
from container_engine.cli.stores import own_store
from container_engine.images.checking import check, repair
from container_engine.images.importing import unusable

if TYPE_CHECKING:
    import argparse

    from container_engine.cli.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("check", "repair"),
        help="check reads everything; repair removes what is damaged, to be imported again",
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    root = own_store(context, site_config(context)).root
    found = 0
    try:
        for damage in check(root):
            found += 1
            if arguments.action == "repair":
                repair(damage)
            done = "removed: " if arguments.action == "repair" else ""
            print(f"{done}{damage.path}: {damage.problem}")
    except OSError as error:
        raise unusable(root, error) from None
    if not found:
        print(f"{root}: nothing is wrong")
    return 1 if found and arguments.action == "check" else 0
