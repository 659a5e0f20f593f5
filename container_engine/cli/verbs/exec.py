"""`ce exec JOB[.STEP]|NAME -- COMMAND`: run one more command in a running container."""

from __future__ import annotations

import argparse
from typing import NoReturn

from container_engine.base.errors import EXIT_ENGINE
from container_engine.base.files import with_given_umask
from container_engine.cli.command_line.options import SHELL, has_terminal
from container_engine.submit.context import Context
from container_engine.tools import running_steps


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-w", "--node", metavar="NODE", help="the node to enter; default: the step's first"
    )
    # options of docker exec: the terminal is always the caller's
    for name in ("-i", "--interactive", "-t", "--tty"):
        parser.add_argument(
            name, action="store_true", dest=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "step", metavar="JOB[.STEP]|NAME", help="a step, a job's newest one, or a container's name"
    )
    command = parser.add_argument(
        "command", metavar="COMMAND", nargs="...", help="the command, after --; else a shell"
    )
    command.required = False
    parser.usage = "ce exec [-h] [-w NODE] JOB[.STEP]|NAME [-- COMMAND [ARGUMENT ...]]"
    parser.set_defaults(failure=EXIT_ENGINE)


def execute(arguments: argparse.Namespace, context: Context) -> NoReturn:
    with_given_umask()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        command = list(SHELL)
    if arguments.here:
        from container_engine.node.inside import tasks

        job, _dot, step = arguments.step.partition(".")
        tasks.become(tasks.find(job, step, arguments.node), command, context.libexec)
    place = running_steps.place(arguments.step, arguments.node, context)
    words = ["exec", "--here", f"--node={place.node}", place.step, "--", *command]
    running_steps.go(place, words, context, ["--pty"] if has_terminal() else [])
