"""`ce shell NAME`: open a shell in the container, without Slurm."""

from __future__ import annotations

import argparse

from container_engine.base.errors import EXIT_ENGINE
from container_engine.cli.command_line.container_options import names_image
from container_engine.cli.verbs import run
from container_engine.compat.foreign import refuse_foreign
from container_engine.printing import messages
from container_engine.submit.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    run.add_options(parser)
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="an environment: a name or the path of a file"
    )
    parser.set_defaults(failure=EXIT_ENGINE)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    """Run bash if the image has it, else sh; return its exit code."""
    rest = [] if arguments.name is None else [arguments.name]
    if (refused := refuse_foreign(arguments, rest)) != 0:
        return refused
    has_image = arguments.image is not None or names_image(arguments)
    if (arguments.name is None) != has_image:
        message = "shell: expected either an environment or --image REF"
        return messages.refuse(message, "ce shell NAME; ce list shows the environments")
    return run.start(arguments.name, [], arguments, context)
