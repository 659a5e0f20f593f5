"""`ce trace`: show where a launch spent its time on every node of the step."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from container_engine.cli import output, steps
from container_engine.errors import UserError
from container_engine.process import reason
from container_engine.trace import page, perfetto, record, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from container_engine.submit.context import Context

_LISTED = 20
_HEAD = ("STEP", "STARTED", "NODES", "START TOOK", "STATE", "ENVIRONMENT")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "step",
        metavar="JOB[.STEP]",
        nargs="?",
        help="a step, a job's newest one, or `last`; without it: the newest steps with a trace",
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with a timeline of all nodes")
    parser.add_argument(
        "--perfetto", metavar="FILE", help="write Chrome's trace format, for ui.perfetto.dev"
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    directory = _directory(context)
    if arguments.step is None:
        return _list(directory, context.uid, as_json=arguments.json)
    step = record.choose(directory, arguments.step, context.uid)
    traces = record.read(directory, step)
    if not traces:
        raise UserError(f"{step}: its traces are not complete", "the step may still be starting")
    if arguments.html:
        _write(arguments.html, page.page(step, traces))
    if arguments.perfetto:
        _write(arguments.perfetto, perfetto.document(step, traces))
    if arguments.json:
        output.document([_for_programs(trace) for trace in traces])
    elif not (arguments.html or arguments.perfetto):
        for line in table.lines(step, traces):
            output.folded(line, table.LABEL_WIDTH)
    return 0


def _directory(context: Context) -> str:
    directory = steps.trace_directory(context)
    if directory is None:
        raise UserError("this site writes no traces", "its configuration has an empty trace_dir")
    return directory


def _list(directory: str, uid: int, *, as_json: bool) -> int:
    known = record.steps(directory, uid)[:_LISTED]
    if as_json:
        output.document(known)
        return 0
    rows = [_row(step, traces) for step in known if (traces := record.read(directory, step))]
    if rows:
        output.table([_HEAD, *rows], right=(2, 3))
    if not rows:
        of_others = "; users have theirs in their homes" if uid == 0 else ""
        output.line(f"no traces in {directory}{of_others}")
    return 0


def _row(step: str, traces: Sequence[record.Trace]) -> tuple[str, ...]:
    began = min(trace.began for trace in traces)
    return (
        step,
        time.strftime("%d %b %H:%M:%S", time.localtime(began)),
        table.share(traces),
        f"{1000 * max(trace.start_took for trace in traces):.0f} ms",
        "runs or was cut off" if traces[0].end is None else "ended",
        str(traces[0].facts["environment"]),
    )


def _for_programs(trace: record.Trace) -> dict[str, object]:
    phases = [phase._asdict() for phase in trace.phases]
    return {
        **trace.facts,
        "node": trace.node,
        "phases": phases,
        "joined": trace.joined,
        "end": trace.end,
    }


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"{path}: {reason(error)}") from None
    output.line(f"wrote {os.path.abspath(path)}")
