"""`ce version`: print the version."""

from __future__ import annotations

import argparse
import sys

from container_engine import __version__
from container_engine.node.node_plan import PLAN_VERSIONS
from container_engine.printing import output
from container_engine.submit.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.json:
        python = ".".join(map(str, sys.version_info[:3]))
        about = {"engine": __version__, "prefix": context.prefix, "python": python}
        output.document({**about, "plans": PLAN_VERSIONS})
        return 0
    output.line(f"ce {__version__} (launch plans of version {PLAN_VERSIONS[-1]})")
    return 0
