"""The user's steps that run in containers: Slurm knows what runs, traces what is in it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from container_engine.cli.prepare import site_config
from container_engine.errors import UserError
from container_engine.process import output
from container_engine.trace import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from container_engine.cli.context import Context

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
    found = []
    for line in output(argv, context.env, _TIMEOUT_S).decode(errors="replace").splitlines():
        identity, nodes, elapsed, name = line.split("|", 3)
        if _STEP.fullmatch(identity):
            environment, image, traced = _traced(context, identity)
            found.append(Step(identity, name, nodes, elapsed, environment, image, traced))
    return found


def _traced(context: Context, step: str) -> tuple[str, str, bool]:
    directory = trace_directory(context)
    if directory is None or not os.path.isdir(os.path.join(directory, step)):
        return "", "", False
    traces = record.read(directory, step)
    if not traces:
        return "", "", False
    facts = traces[0].facts
    return facts["environment"], facts["image"]["name"], True


def trace_directory(context: Context) -> str | None:
    """Where launches of this user leave their traces; None for nowhere."""
    directory = site_config(context).trace_dir
    home = context.env.get("HOME", "/")
    return (home + directory[1:] if directory.startswith("~/") else directory) or None


def choose(steps: Sequence[Step], wanted: str) -> Step:
    """The step that JOB or JOB.STEP names; of a job the newest in a container. Raises UserError."""
    exact = [step for step in steps if step.id == wanted]
    of_job = [step for step in steps if step.id.partition(".")[0] == wanted]
    inside = [step for step in of_job if step.traced] or of_job
    if exact or inside:
        return (exact or [max(inside, key=lambda step: int(step.id.partition(".")[2]))])[0]
    hint = f"there run {', '.join(step.id for step in steps)}" if steps else "none of yours runs"
    raise UserError(f"{wanted}: no such step runs", hint)


def nodes(step: Step, context: Context) -> list[str]:
    argv = ["scontrol", "show", "hostnames", step.nodes]
    return output(argv, context.env, _TIMEOUT_S).decode().split()
