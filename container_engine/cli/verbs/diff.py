"""`ce diff NAME OTHER`: compare what two environments do, however they are written."""

from __future__ import annotations

import argparse
import sys

from container_engine.cli.command_line.options import add_show_secrets, secrecy
from container_engine.printing import messages, output
from container_engine.submit.context import Context
from container_engine.submit.environment import load_with_origins
from container_engine.tools.difference import Difference, differences

TROUBLE = 2
_CHANGES = {"-": "removed", "+": "added", "~": "reordered"}
_COLOURS = {"-": "31", "+": "32", "~": "33"}


def configure(parser: argparse.ArgumentParser) -> None:
    for name, metavar in (("name", "NAME"), ("other", "OTHER")):
        parser.add_argument(name, metavar=metavar, help="an environment: a name or a path")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_show_secrets(parser)
    parser.set_defaults(failure=TROUBLE)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    """Print the differences and return, as diff(1) does, 0 if there are none, else 1.

    The exit code is 2 if an environment is not valid.
    """
    sides = [load_with_origins(name, context) for name in (arguments.name, arguments.other)]
    for side in sides:
        messages.say("".join(problem.text for problem in side.problems))
    hidden = secrecy(arguments, context, sides[0].site.secret_variables)
    lines = differences(sides[0].edf, sides[1].edf, hidden)
    if arguments.json:
        output.document({"differences": list(map(_parts, lines))})
        return int(bool(lines))
    colourful = messages.wants_colour(sys.stdout, context.env)
    for line in lines:
        output.line(line, _COLOURS[line.sign] if colourful else "")
    return int(bool(lines))


def _parts(line: Difference) -> dict[str, str | None]:
    return {
        "change": _CHANGES[line.sign],
        "key": line.key,
        "value": line.value or None,
        "from": line.origin or None,
    }
