"""The user's steps that run in containers: Slurm lists them, traces describe their content."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from container_engine.cli.jobs import plain_environment
from container_engine.errors import CeError, UserError
from container_engine.process import on_the_host, output, reason
from container_engine.submit.prepare import site_config
from container_engine.trace import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from container_engine.submit.context import Context

_TIMEOUT_S = 60
# the step that we start must not inherit the size of the current one
_UNWANTED = ("SLURM_CE_", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE")
_STEP = re.compile(r"\d+\.\d+")


class Step(NamedTuple):
    """A running step. `environment` and `image` are from its trace, if it has one."""

    id: str
    name: str
    nodes: str
    elapsed: str
    environment: str
    image: str
    traced: bool


def running(context: Context) -> list[Step]:
    """Return the user's running steps in Slurm's order, without those of batch scripts."""
    argv = ["squeue", "--noheader", "--steps", f"--user={context.uid}", "--format=%i|%N|%M|%j"]
    directory = trace_directory(context)
    known = record.steps(directory, context.uid) if directory else []
    found = []
    listing = output(argv, plain_environment(context), _TIMEOUT_S).decode(errors="replace")
    for line in listing.split("\n"):
        identity, *facts = line.split("|", 3)
        # a line without these fields continues a step's name that contains line ends
        if _STEP.fullmatch(identity) and len(facts) == 3:
            nodes, elapsed, name = facts
            trace = record.first(directory or "", identity) if identity in known else None
            found.append(Step(identity, name, nodes, elapsed, *_traced(trace)))
    return found


def _traced(trace: record.Trace | None) -> tuple[str, str, bool]:
    if trace is None:
        return "", "", False
    image = trace.facts["image"]
    images = " + ".join(one["name"] for one in (image, *image.get("above", ())))
    return str(trace.facts["environment"]), images, True


def trace_directory(context: Context) -> str | None:
    """Return the directory of the traces of this user's launches, or None if there is none."""
    directory = site_config(context).trace_dir
    home = context.env.get("HOME", "/")
    return (home + directory[1:] if directory.startswith("~/") else directory) or None


def choose(steps: Sequence[Step], wanted: str) -> Step:
    """Return the step that JOB.STEP names, or the newest one of JOB, if possible in a container.

    Raises UserError if no such step runs.
    """
    if not wanted[:1].isdigit():
        raise UserError("is not JOB or JOB.STEP", "ce ps lists the steps that run", name=wanted)
    exact = [step for step in steps if step.id == wanted]
    of_job = [step for step in steps if step.id.partition(".")[0] == wanted]
    inside = [step for step in of_job if step.traced] or of_job
    if exact or inside:
        return (exact or [max(inside, key=lambda step: int(step.id.partition(".")[2]))])[0]
    hint = f"running are {', '.join(step.id for step in steps)}" if steps else "none of yours runs"
    raise UserError("no such step runs", hint, where=wanted)


class Place(NamedTuple):
    """A step, as JOB.STEP, and one of its nodes."""

    step: str
    node: str


def place(wanted: str, node: str | None, context: Context) -> Place:
    """Return where the container `wanted` runs, JOB or JOB.STEP; by default on its first node.

    Raises UserError.
    """
    step = choose(running(context), wanted)
    known = nodes(step, context)
    if node is not None and node not in known:
        raise UserError(f"step {step.id} does not run on {node}", f"it runs on {step.nodes}")
    return Place(step.id, node or known[0])


def go(place: Place, words: Sequence[str], context: Context, *, terminal: bool = False) -> NoReturn:
    """Replace this process with srun, which runs `ce WORDS` on the node. Raises CeError."""
    job = place.step.partition(".")[0]
    argv = ["srun", "--quiet", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1"]
    argv += [f"--nodelist={place.node}", "--mem=0", "--cpu-bind=none", "--mpi=none"]
    argv += ["--pty"] if terminal else []
    environment = {k: v for k, v in context.env.items() if not k.startswith(_UNWANTED)}
    try:
        os.execvpe("srun", [*argv, f"{context.prefix}/bin/ce", *words], on_the_host(environment))
    except OSError as error:
        raise CeError(f"cannot start srun: {reason(error)}") from None


def nodes(step: Step, context: Context) -> list[str]:
    argv = ["scontrol", "show", "hostnames", step.nodes]
    return output(argv, context.env, _TIMEOUT_S).decode().split()
