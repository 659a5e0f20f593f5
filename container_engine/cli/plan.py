"""`ce plan NAME`: what a launch would do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from container_engine.cli import messages, remembered
from container_engine.cli.pulling import add_pull

if TYPE_CHECKING:
    import argparse

    from container_engine.cli.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="an environment: a name or the path of a file")
    parser.add_argument("--json", action="store_true", help="the plan itself, as nodes receive it")
    parser.add_argument(
        "--for",
        dest="caller",
        choices=("srun", "salloc", "sbatch"),
        help="the command that asks; a plan is the same for all",
    )

    add_pull(parser)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    notices, text = remembered.plan_of(arguments.name, context, arguments.pull)
    messages.say(notices)
    if arguments.json:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    elif text:
        from container_engine.plan.model import from_json
        from container_engine.plan.show import show

        sys.stdout.write(show(from_json(text)))
    sys.stdout.flush()
    return 0
