"""The user's steps that run in containers: Slurm lists them, traces describe their content."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from container_engine.base import slurm
from container_engine.base.errors import CeError, UserError
from container_engine.base.process import reason
from container_engine.node.inside import tasks
from container_engine.node.report.image_reads import of_guard
from container_engine.submit.context import Context, places
from container_engine.tools import step_traces
from container_engine.tools.image_reads import Reads, sound

# also of an array, 7_3.0, or of a component of a heterogeneous job
_STEP = re.compile(r"(\d+(?:[_+]\d+)?)\.(\d+)(?:\+\d+)?")


class Step(NamedTuple):
    """A running step. `environment`, `image` and `container`, its name, are from its trace, if any.

    `id` is as squeue shows it, 7_3.0 for a job array; `plain` is the job's number, or that of the
    first component of a heterogeneous one, with the step's, by which its tasks and traces know it.
    `job` is the job as `slurm.beside` takes it.
    """

    id: str
    name: str
    nodes: str
    elapsed: str
    environment: str
    image: str
    traced: bool
    plain: str
    container: str = ""
    job: str = ""


def running(context: Context) -> list[Step]:
    """Return the user's running steps in Slurm's order, without those of batch scripts."""
    argv = ["squeue", "--noheader", "--steps", f"--user={context.uid}", "--format=%i|%N|%M|%j"]
    directory = trace_directory(context)
    known = step_traces.steps(directory, context.uid) if directory else []
    listed = []
    for line in slurm.answer(argv, context.env).split("\n"):
        identity, *facts = line.split("|", 3)
        # a line without these fields continues a step's name that contains line ends
        match = _STEP.fullmatch(identity)
        if match and len(facts) == 3:
            listed.append((match, facts))
    jobs = slurm.jobs(context.env, context.uid) if listed else {}
    found = []
    for match, (nodes, elapsed, name) in listed:
        job = jobs.get(match[1], match[1])
        plain = f"{job.partition('+')[0]}.{match[2]}"
        trace = step_traces.first(directory, plain) if plain in known else None
        container = str(trace.facts.get("container", "")) if trace is not None else ""
        found.append(Step(match[0], name, nodes, elapsed, *_traced(trace), plain, container, job))
    return found


def _traced(trace: step_traces.Trace | None) -> tuple[str, str, bool]:
    if trace is None:
        return "", "", False
    image = trace.facts["image"]
    images = " + ".join(one["name"] for one in (image, *image.get("above", ())))
    return str(trace.facts["environment"]), images, True


def trace_directory(context: Context) -> str:
    """Return the directory of the traces of this user's launches, "" if there is none."""
    return places(context).traces_of(context.env.get("HOME", "/"))


def written_traces(context: Context) -> str:
    """Return the directory of the traces. Raise UserError if the site writes none."""
    directory = trace_directory(context)
    if not directory:
        raise UserError("this site writes no traces", "its configuration has an empty trace_dir")
    return directory


def choose(steps: Sequence[Step], wanted: str, job: str = "") -> Step:
    """Return the step that JOB.STEP names, or the newest one of JOB, if possible in a container.

    Each may be written as squeue shows it or with plain numbers. JOB.NAME, and NAME within `job`
    or where one job alone has it, is the newest step in the container of that name. Raise
    UserError if no such step runs.
    """
    exact = [step for step in steps if wanted in (step.id, step.plain)]
    of_job = [step for step in steps if is_of_job(step, wanted)]
    inside = [step for step in of_job if step.traced] or of_job or _in_container(steps, wanted, job)
    if exact or inside:
        return (exact or [max(inside, key=lambda step: int(step.plain.partition(".")[2]))])[0]
    if not wanted[:1].isdigit():
        reason = "is not JOB, JOB.STEP or the name of a container that runs"
        hint = "ce ps lists the steps that run; ce shell NAME opens a container of an environment"
        raise UserError(reason, hint, name=wanted)
    hint = (
        f"running: {', '.join(step.id for step in steps)}"
        if steps
        else "no step of yours is running"
    )
    raise UserError("no such step runs", hint, where=wanted)


def _in_container(steps: Sequence[Step], wanted: str, job: str) -> list[Step]:
    """Return the steps in the container NAME or JOB.NAME. Raise UserError if NAME is ambiguous."""
    named = [
        step
        for step in steps
        if step.container and wanted in (step.container, f"{_job(step)}.{step.container}")
    ]
    jobs = sorted({_job(step) for step in named})
    if len(jobs) > 1 and job in jobs:
        return [step for step in named if _job(step) == job]
    if len(jobs) > 1:
        hint = f"choose one: {' or '.join(f'{one}.{wanted}' for one in jobs)}"
        raise UserError(f"jobs {', '.join(jobs)} have containers of this name", hint, name=wanted)
    return named


def _job(step: Step) -> str:
    return step.plain.partition(".")[0]


def is_of_job(step: Step, job: str) -> bool:
    return job in (step.id.partition(".")[0], step.plain.partition(".")[0])


class Place(NamedTuple):
    """A step as JOB.STEP, one of its nodes, and its job as `slurm.beside` takes it."""

    step: str
    node: str
    job: str


def place(wanted: str, node: str | None, context: Context) -> Place:
    """Return where the container `wanted` runs (see choose); by default on its first node.

    Raise UserError.
    """
    steps = running(context)
    step = choose(steps, wanted, context.env.get("SLURM_JOB_ID", ""))
    # a step of several components of a heterogeneous job is listed once for each
    parts = [one for one in steps if one.plain == step.plain]
    places = [(host, one) for one in parts for host in slurm.hosts(one.nodes, context.env)]
    for host, one in places:
        if host == node or (node is None and one == step):
            return Place(step.plain, host, one.job)
    nodes = ",".join(one.nodes for one in parts)
    raise UserError(f"step {step.id} does not run on {node}", f"it runs on {nodes}")


def image_reads(step: Step, context: Context) -> dict[str, Reads]:
    """Ask the nodes of a step what they have read from its image files. Raise CeError."""
    count = len(slurm.hosts(step.nodes, context.env))
    argv = slurm.beside(step.job, step.nodes, count)
    argv += [f"{context.prefix}/bin/ce", "ps", "--here", step.plain]
    said = slurm.answer(argv, slurm.without_step(context.env))
    answers = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {one["node"]: sound(one["image_reads"]) for one in answers}


def image_reads_here(plain: str, context: Context) -> dict[str, object]:
    """Return the answer of this node, which the step with this number runs on."""
    node = context.env.get("SLURMD_NODENAME", "")
    job, _dot, number = plain.partition(".")
    try:
        guard = tasks.guard_of_step(tasks.find(job, number, node))
    except (UserError, OSError):
        return {"node": node, "image_reads": []}
    return {"node": node, "image_reads": of_guard(guard)}


def go(place: Place, words: Sequence[str], context: Context, options: Sequence[str]) -> NoReturn:
    """Replace this process with srun, with more options, which runs `ce WORDS` on the node.

    Raise CeError.
    """
    argv = [*slurm.beside(place.job, place.node), *options]
    argv += [f"{context.prefix}/bin/ce", *words]
    try:
        os.execvpe("srun", argv, slurm.without_step(context.env))
    except OSError as error:
        raise CeError(f"cannot start srun: {reason(error)}") from None
