"""`ce lint NAME…`: give advice on valid environments."""

from __future__ import annotations

import argparse
import os
import re
import sys

from container_engine.base.mounts import network_file_system
from container_engine.base.text_layout import one_line
from container_engine.edf.model import Problem
from container_engine.edf.names import VENV_MARKS
from container_engine.edf.show import histories
from container_engine.printing import messages, output
from container_engine.submit.context import Context
from container_engine.submit.environment import load_with_origins
from container_engine.submit.known_image import judged
from container_engine.submit.refused import RefusedError
from container_engine.tools.lint.advise import advise
from container_engine.tools.lint.subject import Packages, Subject

_MODULE = re.compile(r"\.(py|so)$")
_MOST_FILES = 200_000  # a file server takes a minute to list as many


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", metavar="NAME", nargs="+", help="an environment: a name or the path of a file"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if there is any advice")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    """Print advice to stdout, and the warnings of `ce validate` to stderr."""
    count = 0
    listed: list[dict[str, object]] = []
    for name in arguments.names:
        traced = load_with_origins(name, context)
        problems = (*traced.problems, *judged(traced.edf, context, traced.site_context))
        if any(problem.severity == "error" for problem in problems):
            raise RefusedError(problems)
        messages.say("".join(problem.text for problem in problems))
        subject = Subject(
            traced.edf,
            histories(traced.edf, traced.files),
            traced.hooks,
            traced.site_context,
            context.cwd,
            context.env,
            network_file_system,
            _packages,
        )
        # no advice on lines that the loader has already warned about
        warned = {(problem.file, problem.line, problem.key) for problem in problems}
        found = [p for p in advise(subject) if (p.file, p.line, p.key) not in warned]
        count += len(found)
        listed += [{"name": name, **_parts(problem)} for problem in found]
        if arguments.json:
            continue
        text = "".join(map(_advice_text, found)) or f"{one_line(name)}: no advice\n"
        output.text(text)
    if arguments.json:
        output.document({"advice": listed})
    sys.stdout.flush()
    return int(arguments.strict and count > 0)


def _parts(problem: Problem) -> dict[str, object]:
    names = ("file", "line", "key", "message", "hint")
    return {name: getattr(problem, name) for name in names}


def _advice_text(problem: Problem) -> str:
    """Return advice for stdout: the line itself, and the hint below it."""
    hint = f"    {one_line(problem.hint)}\n" if problem.hint else ""
    return f"{one_line(str(problem))}\n{hint}"


def _packages(path: str) -> Packages | None:
    """Count what is in a directory of Python packages, the first `_MOST_FILES` files of it."""
    if not os.path.isdir(path):
        return None
    there = (kind for kind, mark in VENV_MARKS.items() if os.path.exists(f"{path}/{mark}"))
    kind = next(there, "")
    files = modules = 0
    for _where, _directories, names in os.walk(path):
        files += len(names)
        modules += sum(1 for name in names if _MODULE.search(name))
        if files > _MOST_FILES:
            break
    return Packages(kind, files, modules)
