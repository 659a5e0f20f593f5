"""`ce ps`: list the user's steps that run in containers."""

from __future__ import annotations

import argparse

from container_engine.base.errors import UserError
from container_engine.base.text_layout import one_line
from container_engine.printing import output
from container_engine.submit.context import Context
from container_engine.tools import running_steps

_HEAD = ("STEP", "NODES", "TIME", "COMMAND", "ENVIRONMENT", "IMAGE", "CONTAINER")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", nargs="?", help="only the steps of this job")
    parser.add_argument("--json", action="store_true", help="print JSON")
    # an option of Docker and Podman
    parser.add_argument("-a", "--all", action="store_true", help=argparse.SUPPRESS)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.all:
        raise UserError("ps: only running steps are listed", "ce trace lists those that have ended")
    found = [
        step
        for step in running_steps.running(context)
        if step.traced and (arguments.job is None or running_steps.is_of_job(step, arguments.job))
    ]
    if arguments.json:
        steps_found = [step._asdict() for step in found]
        output.document({"steps": steps_found})
        return 0
    cells = [(s.id, s.nodes, s.elapsed, s.name, s.environment, s.image, s.container) for s in found]
    rows = [_HEAD, *(tuple(map(one_line, row)) for row in cells)]
    # names are rare
    if not any(step.container for step in found):
        rows = [row[:-1] for row in rows]
    output.table(rows)
    return 0
