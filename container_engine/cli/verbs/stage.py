"""`ce stage`: copy an environment's images into the memory of the job's nodes."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence

from container_engine.base import slurm
from container_engine.base.errors import UserError
from container_engine.base.text_layout import duration_text, warning_text
from container_engine.node import slurm_step
from container_engine.node.start import site_rules
from container_engine.printing import messages, output
from container_engine.submit import plan_output
from container_engine.submit.context import Context, configuration
from container_engine.tools import staging

_LIMIT_S = 600


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Copy the images and :sqsh mounts of environments into the memory of each node of the job."
        " Steps that start later read these copies. A node without a copy reads the shared file."
    )
    parser.add_argument(
        "--limit", metavar="SECONDS", type=int, default=_LIMIT_S, help=f"{_LIMIT_S} if not given"
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
    if not env.get("SLURM_JOB_ID") or not env.get("SLURM_JOB_NODELIST"):
        raise UserError("stage: this is no job", "for example: salloc -N 4, then ce stage NAME")
    _refuse_rules(context)
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


def _refuse_rules(context: Context) -> None:
    """Raise UserError if nodes leave copies alone: rules are about the files that a plan names."""
    config = configuration(context)
    for file in config.files:
        with open(file, encoding="utf-8") as text:
            named = re.search("|".join(site_rules.RULES), text.read())
        if named:
            what = f"stage: the site has a rule for images or mounts, {named[0]}"
            raise UserError(what, "containers start from the shared file", where=file)


def _tell(found: Sequence[staging.Outcome], took: float) -> int:
    """Print where each file is now, and warn of nodes without it. Return the exit code."""
    alike: dict[tuple[str, str], list[str]] = {}
    for one in found:
        alike.setdefault((one.path, one.why), []).append(one.node)
    for (path, why), nodes in alike.items():
        where = slurm_step.contract(nodes)
        if why:
            hint = "their containers start from the shared file"
            messages.say(warning_text(f"{where}: {path} is not in memory: {why}; {hint}"))
        else:
            output.line(f"{path}: in the memory of {where}, after {duration_text(took)}")
    return int(all(one.why for one in found))
