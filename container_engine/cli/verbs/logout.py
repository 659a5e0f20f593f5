"""`ce logout REGISTRY`: remove the login stored by `ce login` or `podman login`."""

from __future__ import annotations

import argparse

from container_engine.base.errors import UserError
from container_engine.cli.verbs.login import log_out
from container_engine.printing import output
from container_engine.submit.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("registry", metavar="REGISTRY", help="for example nvcr.io")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if not log_out(arguments.registry, context.env):
        raise UserError("you are not logged in there", name=arguments.registry)
    output.line(f"logged out from {arguments.registry}")
    return 0
