"""`ce ps`: list the user's steps that run in containers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from container_engine.base.errors import CeError, UserError
from container_engine.base.text_layout import block, one_line
from container_engine.printing import messages, output
from container_engine.submit.context import Context
from container_engine.tools import image_reads, running_steps

_HEAD = ("STEP", "NODES", "TIME", "COMMAND", "ENVIRONMENT", "IMAGE", "CONTAINER")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", nargs="?", help="only the steps of this job")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="ask the nodes what they read of the images"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    # an option of Docker and Podman
    parser.add_argument("-a", "--all", action="store_true", help=argparse.SUPPRESS)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.here:
        output.line(json.dumps(running_steps.image_reads_here(arguments.job, context)))
        return 0
    if arguments.all:
        raise UserError("ps: only running steps are listed", "ce trace lists those that have ended")
    found = [
        step
        for step in running_steps.running(context)
        if step.traced and (arguments.job is None or running_steps.is_of_job(step, arguments.job))
    ]
    reads = [_reads(step, context) if arguments.verbose else {} for step in found]
    if arguments.json:
        steps_found = [
            {**step._asdict(), **({"image_reads": of_step} if arguments.verbose else {})}
            for step, of_step in zip(found, reads, strict=True)
        ]
        output.document({"steps": steps_found})
        return 0
    cells = [(s.id, s.nodes, s.elapsed, s.name, s.environment, s.image, s.container) for s in found]
    rows = [_HEAD, *(tuple(map(one_line, row)) for row in cells)]
    # names are rare
    if not any(step.container for step in found):
        rows = [row[:-1] for row in rows]
    output.table(rows)
    for step, of_step in zip(found, reads, strict=True):
        for line in image_reads.lines(of_step, output.columns(), step.id):
            output.line(line)
    return 0


def _reads(step: running_steps.Step, context: Context) -> Mapping[str, image_reads.Reads]:
    """Return what the nodes have read, nothing if they cannot be asked; the list is shown then."""
    try:
        return running_steps.image_reads(step, context)
    except CeError as error:
        hint = f"it may just have ended: ce trace {step.id}"
        said = block("warning", f"step {step.id}: its nodes do not answer: {error}", hint)
        messages.say(said)
        return {}
