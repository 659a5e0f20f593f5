"""`ce stage`: copy an environment's images into the memory of the job's nodes."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from container_engine.base import slurm
from container_engine.base.errors import UserError
from container_engine.base.text_layout import duration_text
from container_engine.node import slurm_step
from container_engine.printing import messages, output
from container_engine.submit import plan_output
from container_engine.submit.context import Context
from container_engine.tools import staging


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Copy the images and :sqsh mounts of environments into the memory of each node of the job."
        " Steps that start later read these copies. A node without a copy reads the shared file."
    )
    parser.add_argument(
        "--limit",
        metavar="SECONDS",
        type=int,
        default=staging.LIMIT_S,
        help=f"{staging.LIMIT_S} if not given",
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "name", metavar="NAME", nargs="+", help="an environment: a name or the path of a file"
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    env = context.env
    if arguments.here:
        for line in staging.here(arguments.name, env):
            output.line(line)
            sys.stdout.flush()  # somebody waits for it
        return 0
    staging.refuse(context)
    if not env.get("SLURM_JOB_ID") or not env.get("SLURM_JOB_NODELIST"):
        raise UserError("stage: this is no job", "for example: salloc -N 4, then ce stage NAME")
    if arguments.limit <= 0:
        raise UserError(f"stage: --limit={arguments.limit} is no time", "name a number of seconds")
    files: dict[str, staging.File] = {}
    for name in arguments.name:
        notices, _head, plan = plan_output.plan_of(name, context, None)
        messages.say(notices)
        files.update({file.path: file for file in staging.files_of(plan)})
    nodes = slurm.hosts(env["SLURM_JOB_NODELIST"], env)
    job = staging.Job(nodes, env, f"{context.prefix}/bin/ce", arguments.limit)
    began = time.monotonic()
    found = staging.stage(list(files.values()), job, messages.say_progress)
    return _tell(found, time.monotonic() - began)


def _tell(found: Sequence[staging.Outcome], took: float) -> int:
    """Print where each file is now, and warn of nodes without it. Return the exit code."""
    alike = staging.alike(found)
    staging.warn(alike)
    for (path, why), nodes in alike.items():
        if not why:
            where = slurm_step.contract(nodes)
            output.line(f"{path}: in the memory of {where}, after {duration_text(took)}")
    return int(all(one.why for one in found))
