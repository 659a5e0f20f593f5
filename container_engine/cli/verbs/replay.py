"""`ce replay JOB`: start again what a step has started, after a look at what has changed since."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Sequence

from container_engine.base import slurm
from container_engine.base.errors import CeError, UserError
from container_engine.base.files import publish_own, user_directory, with_given_umask
from container_engine.base.process import reason
from container_engine.cli.command_line.options import add_show_secrets, secrecy
from container_engine.printing import messages, output
from container_engine.submit import plan_output
from container_engine.submit.context import Context
from container_engine.tools import running_steps, step_traces
from container_engine.tools.difference import Difference

_MOST = 200  # environments that are kept, as of plans


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--dry-run", action="store_true", help="start nothing")
    parser.add_argument(
        "-f", "--force", action="store_true", help="start it in spite of what has changed"
    )
    add_show_secrets(parser)
    parser.add_argument("step", metavar="JOB[.STEP]", help="a step, a job's newest one, or `last`")
    command = parser.add_argument(
        "command", metavar="COMMAND", nargs="...", help="the command, after -- and options of srun"
    )
    command.required = False
    parser.usage = "ce replay [-h] [-n] [-f] [--show-secrets] JOB[.STEP] [-- [OPTION ...] COMMAND]"


def execute(arguments: argparse.Namespace, context: Context) -> int:
    """Return 1 if nothing was started because something has changed, else 0."""
    directory = running_steps.written_traces(context)
    step = step_traces.choose(directory, arguments.step, context.uid)
    traces = step_traces.whole(directory, step)
    argv, found = _replayed(step, traces, arguments, context)
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    starts = bool(words) and not arguments.dry_run
    # what the command prints begins after these lines, and is alone on stdout
    tell = (lambda line: messages.say(f"{line}\n")) if starts else output.line
    for line in found:
        tell(str(line))
    if found and starts and not arguments.force:
        hint = "the lines above say what; --force starts it with what is there now"
        raise UserError("not as it was when the step started", hint, where=step)
    tell(shlex.join([*argv, *words]) if words else f"{shlex.join(argv)} COMMAND")
    if not starts:
        return int(bool(found))
    with_given_umask()
    try:
        os.execvpe("srun", [*argv, *words], context.env)
    except OSError as error:
        raise CeError(f"cannot start srun: {reason(error)}") from None


def _replayed(
    step: str,
    traces: Sequence[step_traces.Trace],
    arguments: argparse.Namespace,
    context: Context,
) -> tuple[list[str], list[Difference]]:
    """Write the environment; return the srun for it, without a command, and what has changed."""
    from container_engine.base.model import MisfitError
    from container_engine.edf.show import to_toml
    from container_engine.plan.model import LaunchPlan
    from container_engine.tools import replay

    facts = traces[0].facts
    kept = plan_output.kept(str(facts.get("plan", "")), context.env)
    if kept is None:
        hint = "the plans of your last 200 different starts are, in your home"
        raise UserError("its plan is not kept", hint, where=step)
    try:
        plan = LaunchPlan.of(json.loads(kept.plan))
    except (MisfitError, ValueError):
        text = f"its plan is of the engine {facts.get('engine')}, which this one cannot read"
        raise UserError(text, "use that engine, or its environment", where=step) from None
    hidden = secrecy(arguments, context, plan.settings.secret_variables)
    hidden = hidden.knowing([(e.name, e.value) for e in plan.env if isinstance(e.value, str)])
    state = user_directory("XDG_STATE_HOME", ".local/state", context.env)
    place, name = f"{state}/container-engine/replays", f"{step}.toml"
    edf = replay.environment(plan, f"{place}/{name}")
    began = min(trace.began for trace in traces)
    found = [
        *_elsewhere(traces, context),
        *replay.changes(plan, edf, began, context, hidden),
    ]
    for sentence in replay.moved(plan, context):
        messages.say(f"ce: {sentence}\n")
    text = f"# what step {step} started, by its kept plan: ce replay wrote this\n{to_toml(edf)}"
    try:
        publish_own(place, name, text.encode("utf-8", "surrogateescape"), _MOST)
    except OSError as error:
        raise UserError(reason(error), where=f"{place}/{name}") from None
    count = len(traces) + len(step_traces.missing(traces))
    tasks = max((str(trace.facts.get("tasks", "")) for trace in traces), key=len)
    size = [f"-N{count}", *([f"-n{tasks}"] if tasks else [])]
    return ["srun", *size, f"--environment={place}/{name}"], found


def _elsewhere(traces: Sequence[step_traces.Trace], context: Context) -> list[Difference]:
    """Return a difference if this cluster has none of the step's nodes: a home may serve several.

    Raise CeError if Slurm does not answer.
    """
    names = ",".join(trace.node for trace in traces[:_MOST])
    argv = ["sinfo", "--noheader", f"--nodes={names}", "--format=%N"]
    there = slurm.answer(argv, context.env).strip()
    return [] if there else [Difference("-", "nodes", f"{names}: this cluster has none of them")]
