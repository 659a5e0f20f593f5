"""`ce exec JOB[.STEP] -- COMMAND`: run one more command in a running container."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from container_engine.cli import interactive, messages, running_steps
from container_engine.errors import CeError, UserError
from container_engine.process import on_the_host, reason

if TYPE_CHECKING:
    from container_engine.submit.context import Context

NOT_STARTED = 125
# the step that we start must not inherit the size of the current one
_UNWANTED = ("SLURM_CE_", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-w", "--node", metavar="NODE", help="the node to go to; else the step's first"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("step", metavar="JOB[.STEP]", help="a step, or a job's newest one")
    command = parser.add_argument(
        "command", metavar="COMMAND", nargs="...", help="the command, after --; else a shell"
    )
    command.required = False
    parser.usage = "ce exec [-h] [-w NODE] JOB[.STEP] [-- COMMAND [ARGUMENT ...]]"
    parser.set_defaults(failure=NOT_STARTED)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        command = list(interactive.SHELL)
    if arguments.here:
        from container_engine.node.start import attach

        job, _dot, step = arguments.step.partition(".")
        attach.become(attach.find(job, step, arguments.node), command, context.libexec)
    running = running_steps.running(context)
    step = running_steps.choose(running, arguments.step)
    nodes = running_steps.nodes(step, context)
    node = arguments.node or nodes[0]
    if node not in nodes:
        raise UserError(f"step {step.id} does not run on {node}", f"it runs on {step.nodes}")
    return _go(step.id, node, command, context)


def _go(step: str, node: str, command: list[str], context: Context) -> int:
    """Replace this process with srun, which runs the rest on the node."""
    job = step.partition(".")[0]
    argv = ["srun", "--quiet", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1"]
    argv += [f"--nodelist={node}", "--mem=0", "--cpu-bind=none", "--mpi=none"]
    if interactive.has_terminal():
        argv.append("--pty")
    argv += [f"{context.prefix}/bin/ce", "exec", "--here", f"--node={node}", step, "--", *command]
    environment = {k: v for k, v in context.env.items() if not k.startswith(_UNWANTED)}
    try:
        os.execvpe("srun", argv, on_the_host(environment))
    except OSError as error:
        messages.say(messages.of_error(CeError(f"cannot start srun: {reason(error)}")))
        return NOT_STARTED
