"""`ce trace`: where a launch spent its time, on every node of the step."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from container_engine.cli import steps
from container_engine.errors import UserError
from container_engine.process import reason
from container_engine.trace import page, perfetto, record, table

if TYPE_CHECKING:
    import argparse

    from container_engine.cli.context import Context

_LISTED = 20


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "step",
        metavar="JOB[.STEP]",
        nargs="?",
        help="a step, or a job's newest one; without it: the newest steps that have a trace",
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with a timeline of all nodes")
    parser.add_argument(
        "--perfetto", metavar="FILE", help="write Chrome's trace format, for ui.perfetto.dev"
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    directory = _directory(context)
    if arguments.step is None:
        return _list(directory, as_json=arguments.json)
    step = record.choose(directory, arguments.step)
    traces = record.read(directory, step)
    if not traces:
        raise UserError(f"{step}: its traces are not complete", "the step may still be starting")
    if arguments.html:
        _write(arguments.html, page.page(step, traces))
    if arguments.perfetto:
        _write(arguments.perfetto, perfetto.document(step, traces))
    if arguments.json:
        print(json.dumps([_for_programs(trace) for trace in traces], indent=2))
    elif not (arguments.html or arguments.perfetto):
        print("\n".join(table.lines(step, traces)))
    return 0


def _directory(context: Context) -> str:
    directory = steps.trace_directory(context)
    if directory is None:
        raise UserError("this site writes no traces", "its configuration has an empty trace_dir")
    return directory


def _list(directory: str, *, as_json: bool) -> int:
    known = record.steps(directory)[:_LISTED]
    if as_json:
        print(json.dumps(known))
        return 0
    for step in known:
        traces = record.read(directory, step)
        if traces:
            took = max(trace.start_took for trace in traces)
            state = "runs or was cut off" if traces[0].end is None else "ended"
            name = traces[0].facts["environment"]
            nodes = f"{len(traces)} {'node' if len(traces) == 1 else 'nodes'}"
            print(f"{step:<12} {nodes:>11}  {1000 * took:>8.1f} ms  {state:<20}  {name}")
    if not known:
        print(f"no traces in {directory}")
    return 0


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
    print(f"wrote {os.path.abspath(path)}")
