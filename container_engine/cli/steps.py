"""The user's steps that run in containers: Slurm knows what runs, traces what is in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from container_engine.cli.jobs import plain_environment
from container_engine.errors import UserError
from container_engine.process import output
from container_engine.submit.prepare import site_config
from container_engine.trace import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from container_engine.submit.context import Context

_TIMEOUT_S = 60
_STEP = re.compile(r"\d+\.\d+")


class Step(NamedTuple):
    """A step that runs. `environment`, `image` and `tasks` are of its trace, if it has one."""

    id: str
    name: str
    nodes: str
    elapsed: str
    environment: str
    image: str
    traced: bool


def running(context: Context) -> list[Step]:
    """The user's steps that run now, in the order of Slurm; those of batch scripts are left out."""
    argv = ["squeue", "--noheader", "--steps", f"--user={context.uid}", "--format=%i|%N|%M|%j"]
    directory = trace_directory(context)
    known = record.steps(directory, context.uid) if directory else []
    found = []
    said = output(argv, plain_environment(context), _TIMEOUT_S).decode(errors="replace")
    for line in said.split("\n"):
        identity, *facts = line.split("|", 3)
        # a line without them is the rest of a step's name that has line ends
        if _STEP.fullmatch(identity) and len(facts) == 3:
            nodes, elapsed, name = facts
            trace = record.first(directory or "", identity) if identity in known else None
            found.append(Step(identity, name, nodes, elapsed, *_traced(trace)))
    return found


def _traced(trace: record.Trace | None) -> tuple[str, str, bool]:
    if trace is None:
        return "", "", False
    return str(trace.facts["environment"]), str(trace.facts["image"]["name"]), True


def trace_directory(context: Context) -> str | None:
    """Where launches of this user leave their traces; None for nowhere."""
    directory = site_config(context).trace_dir
    home = context.env.get("HOME", "/")
    return (home + directory[1:] if directory.startswith("~/") else directory) or None


def choose(steps: Sequence[Step], wanted: str) -> Step:
    """The step that JOB or JOB.STEP names; of a job the newest in a container. Raises UserError."""
    if not wanted[:1].isdigit():
        raise UserError(f"'{wanted}': is not JOB or JOB.STEP", "ce ps lists the steps that run")
    exact = [step for step in steps if step.id == wanted]
    of_job = [step for step in steps if step.id.partition(".")[0] == wanted]
    inside = [step for step in of_job if step.traced] or of_job
    if exact or inside:
        return (exact or [max(inside, key=lambda step: int(step.id.partition(".")[2]))])[0]
    hint = f"running are {', '.join(step.id for step in steps)}" if steps else "none of yours runs"
    raise UserError(f"{wanted}: no such step runs", hint)


def nodes(step: Step, context: Context) -> list[str]:
    argv = ["scontrol", "show", "hostnames", step.nodes]
    return output(argv, context.env, _TIMEOUT_S).decode().split()
