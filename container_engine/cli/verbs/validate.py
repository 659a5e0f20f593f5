"""`ce validate NAME…`: report every problem of every file in one run."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace

from container_engine import api
from container_engine.base.text_layout import one_line
from container_engine.cli.command_line.options import (
    add_container_options,
    refuse_nothing,
)
from container_engine.compat.pyxis_options import PyxisOptions
from container_engine.printing import messages, output
from container_engine.submit.context import Context
from container_engine.submit.refused import completed


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="an environment: a name or the path of a file"
    )
    add_container_options(parser)
    parser.add_argument("--strict", action="store_true", help="warnings are errors")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--check-files",
        action="store_true",
        help="also look for mount sources, key files and the image on this host",
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    """Print problems to stderr and verdicts to stdout. Return 0 if all are valid, else 1."""
    if not arguments.names and not arguments.container_options:
        return refuse_nothing("validate")
    names: list[str | None] = list(arguments.names) or [None]
    verdicts = [_judge(name, arguments, context) for name in names]
    all_valid = all(verdict.valid for verdict in verdicts)
    if arguments.json:
        listed = [_as_json(verdict) for verdict in verdicts]
        output.document({"valid": all_valid, "environments": listed})
    else:
        for verdict in verdicts:
            messages.say(messages.of_problems(verdict.problems))
            output.line(_line(verdict))
            sys.stdout.flush()
    sys.stdout.flush()
    return 0 if all_valid else 1


def _line(verdict: api.Verdict) -> str:
    # a name that contains a line end must not look like the verdict on another one
    name = one_line(verdict.name)
    if not verdict.valid:
        return f"{name}: not valid"
    remark = ", but only as a base for others (no image)" if verdict.image is None else ""
    absent = _absent(len(verdict.missing))
    return f"{name}: valid{remark}{_warnings(len(verdict.problems))}{absent}"


def _as_json(verdict: api.Verdict) -> dict[str, object]:
    return {
        "name": verdict.name,
        "valid": verdict.valid,
        "image": verdict.image,
        "files": list(verdict.files),
        "problems": [asdict(problem) for problem in verdict.problems],
    }


def _warnings(count: int) -> str:
    return f", {count} warning{'' if count == 1 else 's'}" if count else ""


def _absent(count: int) -> str:
    if not count:
        return ""
    files = "1 file is" if count == 1 else f"{count} files are"
    return f"; {files} not on this host (--check-files shows which)"


def _judge(name: str | None, arguments: argparse.Namespace, context: Context) -> api.Verdict:
    options = PyxisOptions(arguments.container_options)
    verdict = api.validate_in(context, name, options)
    problems = (*verdict.problems, *(verdict.missing if arguments.check_files else ()))
    if arguments.strict:
        problems = completed(replace(problem, severity="error") for problem in problems)
    shown = " ".join(arguments.container_options) if name is None else name
    return verdict._replace(name=shown, problems=problems)
