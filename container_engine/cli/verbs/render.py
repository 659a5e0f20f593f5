"""`ce render NAME`: print the effective environment as JSON or as an EDF of its own."""

from __future__ import annotations

import argparse

from container_engine.edf.show import to_json, to_toml
from container_engine.printing import messages, output
from container_engine.submit.context import Context
from container_engine.submit.environment import anywhere, load_effective
from container_engine.submit.refused import RefusedError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="an environment: a name or the path of a file")
    parser.add_argument(
        "--format", choices=("json", "toml"), default="json", help="JSON, or TOML: an EDF again"
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    loaded = load_effective(arguments.name, context)
    if loaded.edf is None:
        raise RefusedError(loaded.problems)
    messages.say("".join(problem.text for problem in loaded.problems))
    edf = anywhere(loaded.edf, context.cwd)
    if arguments.format == "toml":
        output.exact(to_toml(edf).encode())
    else:
        output.json_text(to_json(edf))
    return 0
