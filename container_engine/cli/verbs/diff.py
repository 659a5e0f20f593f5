"""`ce diff NAME OTHER`: compare what two environments do, however they are written, or steps."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence

from container_engine.base.errors import UserError
from container_engine.cli.command_line.options import add_show_secrets, secrecy
from container_engine.printing import messages, output
from container_engine.submit import plan_output
from container_engine.submit.context import Context
from container_engine.submit.environment import load_with_origins
from container_engine.tools import difference, running_steps, step_traces
from container_engine.tools.difference import Difference, differences

TROUBLE = 2
_STEP = re.compile(r"\d+(_\d+)?(\.\d+)?")
_CHANGES = {"-": "removed", "+": "added"}
_COLOURS = {"-": "31", "+": "32", "~": "33"}


def configure(parser: argparse.ArgumentParser) -> None:
    for name, metavar in (("name", "NAME"), ("other", "OTHER")):
        parser.add_argument(name, metavar=metavar, help="an environment, or a step: JOB[.STEP]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_show_secrets(parser)
    parser.set_defaults(failure=TROUBLE)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    """Print the differences and return, as diff(1) does, 0 if there are none, else 1.

    The exit code is 2 if an environment is not valid, or a step has no trace.
    """
    wanted = (arguments.name, arguments.other)
    if all(map(_STEP.fullmatch, wanted)):
        return _print(_of_steps(wanted, arguments, context), arguments, context)
    sides = [load_with_origins(name, context) for name in wanted]
    for side in sides:
        messages.say("".join(problem.text for problem in side.problems))
    hidden = secrecy(arguments, context, sides[0].site.secret_variables)
    return _print(differences(sides[0].edf, sides[1].edf, hidden), arguments, context)


def _print(lines: Sequence[Difference], arguments: argparse.Namespace, context: Context) -> int:
    if arguments.json:
        output.document({"differences": list(map(_parts, lines))})
        return int(bool(lines))
    colourful = messages.wants_colour(sys.stdout, context.env)
    for line in lines:
        output.line(line, _COLOURS[line.sign] if colourful else "")
    return int(bool(lines))


def _parts(line: Difference) -> dict[str, str | None]:
    return {
        "change": _CHANGES.get(line.sign, "changed" if line.was else "reordered"),
        "key": line.key,
        "value": line.value or None,
        "was": line.was or None,
        "from": line.origin or None,
    }


def _of_steps(
    wanted: Sequence[str], arguments: argparse.Namespace, context: Context
) -> list[Difference]:
    directory = running_steps.written_traces(context)
    steps = []
    for name in wanted:
        step = step_traces.choose(directory, name, context.uid)
        traces = step_traces.whole(directory, step)
        digest = str(traces[0].facts.get("plan", ""))
        kept = plan_output.kept(digest, context.env)
        if kept is None:
            why = "is no longer kept" if digest else "was not kept"
            messages.say(f"ce: step {step}: its plan {why}; values are not compared\n")
        steps.append(difference.Step(traces, kept and json.loads(kept.plan)))
    known = [step.plan for step in steps if step.plan is not None]
    words = {word for plan in known for word in plan["settings"]["secret_variables"]}
    hidden = secrecy(arguments, context, [*words])
    if known:
        entries = [(one["name"], one["value"]) for plan in known for one in plan["env"]]
        hidden = hidden.knowing([pair for pair in entries if isinstance(pair[1], str)])
    try:
        return difference.of_steps(steps[0], steps[1], hidden)
    except (KeyError, TypeError, AttributeError):
        engines = " and ".join(str(step.traces[0].facts.get("engine")) for step in steps)
        raise UserError(f"plans of the engines {engines} cannot be compared") from None
