"""`ce doctor`: check whether containers can run here, and print remedies if not."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence

from container_engine.base.errors import UserError
from container_engine.base.text_layout import aligned
from container_engine.node import slurm_step
from container_engine.printing import output
from container_engine.submit.context import Context
from container_engine.tools.doctor import cluster, site
from container_engine.tools.doctor.all_checks import look, site_and_finding
from container_engine.tools.doctor.cluster import Folded
from container_engine.tools.doctor.finding import Finding, State, ok

# column width for the names of the checks on one host
_WIDTH = 17
_STATES = max(map(len, State))
_COLOURS = {State.OK: "32", State.WARNING: "33", State.FAILED: "31;1"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check what containers need on this host, and start one. Each line is ok, warning or"
        " failed; the last two have a remedy. The exit code is 1 if anything failed."
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--node", action="store_true", help="only what a compute node needs, on this host"
    )
    where.add_argument(
        "--all-nodes",
        action="store_true",
        help="on all nodes of the allocation, else of the cluster, through srun",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--lines", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "srun", metavar="OPTION", nargs="*", help="with --all-nodes: options of srun, after --"
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.all_nodes:
        return _all_nodes(arguments, context)
    if arguments.srun:
        hint = "srun -w NODE ce doctor --node looks at another node; options are for --all-nodes"
        raise UserError(
            f"doctor: '{arguments.srun[0]}': without --all-nodes, only this host is checked", hint
        )
    looked = look(context, whole=not arguments.node)
    if arguments.lines or arguments.json:
        findings = [*looked]
        if arguments.json:
            listed = [finding._asdict() for finding in findings]
            output.document({"host": os.uname().nodename, "findings": listed})
        else:
            output.text(cluster.to_lines(findings))
        return _code(findings)
    return _code([*_told(looked, context)])


def _told(findings: Iterator[Finding], context: Context) -> Iterator[Finding]:
    """Print and yield each finding as soon as it is known, since some checks are slow."""
    for finding in findings:
        _say([cluster.Folded(finding, ())], context, _WIDTH)
        sys.stdout.flush()
        yield finding


def _all_nodes(arguments: argparse.Namespace, context: Context) -> int:
    groups, absent = cluster.groups(context.env)
    names = [name for group in groups for name in group.names]
    ce = f"{context.prefix}/bin/ce"
    answers, busy = cluster.ask(groups, ce, arguments.srun, context.env)
    folded = [*absent, *busy, *cluster.fold(answers)]
    settings, _configuration = site_and_finding(context)
    folded += cluster.unlike(folded, ok("rules", site.hash_of_rules(settings)))
    findings = [entry.finding for entry in folded]
    if arguments.json:
        document = [{"nodes": entry.nodes, **entry.finding._asdict()} for entry in folded]
        output.document({"asked": names, "findings": document})
    else:
        bad = [entry for entry in folded if entry.finding.state is not State.OK]
        _say([*cluster.differing(folded), *bad], context)
        fine = [answer.node for answer in answers if _code(answer.findings) == 0]
        asked = slurm_step.contract(names)
        output.line(f"asked: {asked}; {len(fine)} of {len(names)} can start containers")
    return _code(findings) or int(not answers)


def _code(findings: Sequence[Finding]) -> int:
    return int(any(finding.state is State.FAILED for finding in findings))


def _say(folded: Sequence[Folded], context: Context, width: int = 0) -> None:
    """Print findings, with the names of checks in at least `width` columns."""
    colourful = sys.stdout.isatty() and not context.env.get("NO_COLOR")
    rows, colours = [], []
    for finding, nodes in folded:
        where = f"{slurm_step.contract(nodes)}: " if nodes else ""
        check = f"{finding.check:<{width}}"
        rows.append((f"{finding.state:<{_STATES}}", check, f"{where}{finding.message}"))
        colours.append(_COLOURS[finding.state] if colourful else "")
        if finding.remedy:
            rows.append(("", "", f"remedy: {finding.remedy}"))
            colours.append("")
    indent = _STATES + 4 + max((len(check) for _state, check, _text in rows), default=0)
    for row, colour in zip(aligned(rows) if rows else (), colours, strict=True):
        output.folded(row, indent, colour, _STATES)
