"""`ce run NAME [--] COMMAND…`: run one command in the container, without Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING

from container_engine.cli import messages
from container_engine.cli.pull_option import add_pull
from container_engine.errors import UserError
from container_engine.process import reason
from container_engine.submit import quick, recall

if TYPE_CHECKING:
    import argparse

    from container_engine.node.plan_types import LaunchPlan
    from container_engine.submit.context import Context

NOT_STARTED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127


def configure(parser: argparse.ArgumentParser) -> None:
    add_pull(parser)
    parser.add_argument(
        "--environment", metavar="NAME", help="the environment, as srun has it, and no other NAME"
    )
    parser.add_argument("name", metavar="NAME", help="an environment: a name or the path of a file")
    parser.add_argument(
        "command", metavar="COMMAND", nargs="...", help="the command and its arguments, after --"
    )
    parser.usage = "ce run [-h] [--pull WHEN] NAME -- COMMAND [ARGUMENT ...]"
    parser.set_defaults(failure=NOT_STARTED)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    name, command = _words(arguments)
    if not command:
        error = UserError("run: no command is given", "ce run NAME -- COMMAND")
        messages.say(messages.of_error(error))
        return 2
    with contextlib.ExitStack() as stack:
        asking = _with_passing(context, stack)
        plan = _plan(name, asking, arguments.pull)
        if plan is None:
            stack.close()
            return _run_on_host(command)
        from container_engine.node.start.session import run_in_container

        # a mounted image stays usable after its file has been removed
        return run_in_container(plan, command, context.libexec, started=stack.close)


def _words(arguments: argparse.Namespace) -> tuple[str, list[str]]:
    """Return the name of the environment and the command line."""
    rest: list[str] = arguments.command
    if arguments.environment is not None:
        return arguments.environment, [arguments.name, *rest]
    return arguments.name, rest[1:] if rest[:1] == ["--"] else rest


def _with_passing(context: Context, stack: contextlib.ExitStack) -> Context:
    """Return the context; with EDF_IMAGESTORE=void it has a store that `stack` removes."""
    if context.env.get("EDF_IMAGESTORE") != "void":
        return context
    import tempfile

    from container_engine.images.store.void_store import Passing

    passing = Passing(context.env, tempfile.gettempdir(), os.getpid())
    stack.callback(passing.remove)
    return context._replace(passing=passing)


def _plan(name: str, context: Context, pull: str | None) -> LaunchPlan | None:
    """Return the plan as the node launcher reads it, or None for no container."""
    notices, said = recall.plan_of(name, context, pull)
    messages.say(notices)
    if said == quick.HOST:
        return None
    plan: LaunchPlan = json.loads(quick.plan_in(said))
    return plan


def _run_on_host(command: list[str]) -> int:
    # Python ignores SIGPIPE, which would survive execve
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        messages.say(messages.of_error(UserError(f"{command[0]}: command not found")))
        return NOT_FOUND
    except OSError as error:
        messages.say(messages.of_error(UserError(f"{command[0]}: {reason(error)}")))
        return NOT_EXECUTABLE
