"""`ce vet`: try an environment on each node of the allocation, and tell the good nodes."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator, Sequence

from container_engine.base import slurm
from container_engine.base.errors import UserError
from container_engine.base.process import reason
from container_engine.base.text_layout import one_line
from container_engine.node import slurm_step
from container_engine.printing import messages, output
from container_engine.submit import plan_output
from container_engine.submit.context import Context
from container_engine.tools import running_steps, vet
from container_engine.tools.verdicts import EXCLUDED, FAILED, GOOD, SILENT, Verdict

_LIMIT_S = 60
_WIDTH = len(EXCLUDED)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Start a container on each node of the job's allocation, with all checks of the"
        " environment, its hooks and the site. The exit code is 0 if all nodes are good, or as many"
        " as --good-nodes wants."
    )
    parser.add_argument("name", metavar="NAME", help="an environment: a name or the path of a file")
    parser.add_argument(
        "--good-nodes",
        metavar="N",
        type=_positive,
        help="print a list of N good nodes for srun, and all else on stderr",
    )
    parser.add_argument(
        "--exclude-file",
        metavar="FILE",
        help="leave out the nodes in FILE; add failed ones for a week, silent ones for a day",
    )
    parser.add_argument(
        "--limit",
        metavar="SECONDS",
        type=_positive,
        help=f"for a node's answer; {_LIMIT_S} and the longest limits of checks if not given",
    )
    parser.add_argument(
        "--mpi",
        metavar="TYPE",
        default="",
        help="also start the image's MPI on all good nodes, as srun --mpi=TYPE does",
    )
    parser.add_argument("--json", metavar="FILE", help="write the verdicts as JSON; - is stdout")


def _positive(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number above 0")
    return int(text)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    env, file = context.env, arguments.exclude_file
    nodes = slurm.own_nodes(env)
    if not env.get("SLURM_JOB_ID") or not nodes:
        raise UserError("vet: this is no job", "for example: salloc -N 4 ce vet NAME")
    if arguments.json == "-" and arguments.good_nodes:
        raise UserError("vet: --json - and --good-nodes both print", "--json FILE writes a file")
    if arguments.json not in (None, "-"):
        _write(arguments.json, "")  # no node is asked for what cannot be written
    notices, _head, plan = plan_output.plan_of(arguments.name, context, None)
    messages.say(notices)
    if not plan:
        raise UserError("vet: the environment has no container", "name one with an image")
    excluded = vet.remembered(file, time.time()) if file else {}
    question = vet.Question(
        environment=arguments.name,
        limit_s=arguments.limit or _LIMIT_S + vet.longest_checks(plan),
        traces=running_steps.trace_directory(context),
        uid=context.uid,
        env=env,
        mpi=arguments.mpi,
        ask=f"{context.libexec}/ce-ask",
    )
    found: list[Verdict] = []
    for component, names in nodes.items():
        asked = [node for node in names if node not in excluded]
        verdicts = vet.vet(asked, question._replace(component=component)) if asked else ()
        known = {one.node: one for one in verdicts}
        found += [known.get(node) or Verdict(node, EXCLUDED, excluded[node]) for node in names]
    return _tell(found, arguments)


def _tell(found: Sequence[Verdict], arguments: argparse.Namespace) -> int:
    # those with a warning last
    good = sorted((one for one in found if one.verdict == GOOD), key=lambda one: len(one.warnings))
    names, wanted = [one.node for one in good], arguments.good_nodes
    if arguments.json:
        nodes = [one._asdict() for one in found]
        document = {"version": 1, "environment": arguments.name, "good": names, "nodes": nodes}
        _write(arguments.json, json.dumps(document, indent=2) + "\n")
    lines = "".join(f"{one_line(line)}\n" for line in _lines(found))
    if wanted:
        messages.say(lines)
    elif arguments.json != "-":
        output.text(lines)
    # where no node is good, it is not the nodes' fault
    if arguments.exclude_file and good:
        bad = [one for one in found if one.verdict in {FAILED, SILENT}]
        vet.remember(arguments.exclude_file, bad, time.time())
    if wanted and len(good) < wanted:
        raise UserError(f"vet: {len(good)} of {len(found)} nodes are good, wanted: {wanted}")
    if wanted:
        output.line(slurm_step.contract(names[:wanted]))
    return int(len(good) < (wanted or len(found)))


def _write(path: str, text: str) -> None:
    if path == "-":
        output.json_text(text)
        return
    try:
        with open(path, "w" if text else "a", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        raise UserError(reason(error), where=path) from None


def _lines(found: Sequence[Verdict]) -> Iterator[str]:
    """Yield a line for nodes with equal verdicts, one for each of their warnings, and the sum."""
    alike: dict[Verdict, list[str]] = {}
    for one in found:
        alike.setdefault(one._replace(node="", checks=()), []).append(one.node)
    for one, nodes in alike.items():
        where = slurm_step.contract(nodes)
        yield f"{one.verdict:<{_WIDTH}}  {where}{f': {one.reason}' if one.reason else ''}"
        yield from (f"{'':<{_WIDTH}}  warning: {line}" for line in one.warnings)
    number = sum(one.verdict == GOOD for one in found)
    yield f"{number} of {len(found)} nodes are good"
