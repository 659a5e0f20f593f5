"""Print a step's traces: as text with the time of each phase and the slowest node, or for Perfetto.

Perfetto and chrome://tracing read Chrome's trace event format.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from container_engine.base import text_layout
from container_engine.tools.trace.reader import Phase, Trace, missing

# factor above the median, and least difference in seconds, that make a node a straggler
_SLOWER, _SLOWER_S = 1.5, 0.05
_NAMED = 8
LABEL_WIDTH = 13


# what happens in each phase of a launch
PHASES = {
    "plan": "srun makes a plan of the environment",
    "launch": "slurmstepd hands the plan to the node's launcher",
    "prepare": "the launcher looks at image, mounts, devices, hooks",
    "namespaces": "the user's namespaces are created",
    "mount": "the image is mounted",
    "hooks": "hooks add libraries, devices, files",
    "create": "crun creates the container",
    "init": "its first process starts, with the entrypoint",
    "environment": "the tasks' variables are put together",
    "services": "services of hooks start",
    "startup": "the start-up lines run",
    "answer": "the launcher reports that the container is ready",
    "first join": "until the first task is in the container",
    "last join": "until the last task is in the container",
}


def stragglers(traces: Sequence[Trace]) -> list[Trace]:
    """Return nodes whose start took much longer than the median, the slowest first."""
    if len(traces) < 3:
        return []
    usual = statistics.median(trace.start_took for trace in traces)
    slow = [t for t in traces if t.start_took > max(_SLOWER * usual, usual + _SLOWER_S)]
    return sorted(slow, key=lambda trace: -trace.start_took)


def lines(step: str, traces: Sequence[Trace], columns: int | None = None) -> Iterator[str]:
    """Yield the lines on a step; its table fits a terminal of `columns`."""
    facts = traces[0].facts
    yield f"step {step}: {nodes(traces)}{_tasks(traces)}"
    for trace in traces:
        if trace.facts["error"]:
            yield f"failed: {trace.node}: {trace.facts['error']}"
    began = min(trace.began for trace in traces)
    yield f"started      {time.strftime('%d %b %Y %H:%M:%S', time.localtime(began))}"
    yield f"environment  {facts['environment']}"
    yield f"image        {facts['image']['name']}  {facts['image']['digest']}".rstrip()
    for part in facts["image"].get("above", ()):
        yield f"  above it   {part['name']}  {part['digest']}".rstrip()
    for hook in facts["hooks"]:
        yield f"hook         {hook['name']} {hook['release']}: {hook['reason']}"
    yield ""
    yield from _phases(traces, columns)
    yield ""
    took = [trace.start_took for trace in traces]
    slowest = traces[took.index(max(took))].node
    usual = _ms(statistics.median(took))
    times = f"median {usual}, max {_ms(max(took))} ({slowest})"
    yield f"time until all tasks had started: {times}"
    for trace in stragglers(traces):
        yield f"slow: {trace.node} took {_ms(trace.start_took)}"
    if others := missing(traces):
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        named = ", ".join(others[:_NAMED])
        yield f"no trace of {named}{more}: still starting, interrupted, or not kept here"


def _tasks(traces: Sequence[Trace]) -> str:
    """Return how many tasks have joined, as "N of TOTAL" if not all of them have.

    Nodes record their number when they end.
    """
    joined = sum(trace.joined for trace in traces)
    if not joined and any(trace.end is None and not trace.facts["error"] for trace in traces):
        return ""
    total = max(
        int(text) if (text := str(t.facts.get("tasks", ""))).isdigit() else 0 for t in traces
    )
    return (
        f", {joined} of {count(total, 'task')}" if joined < total else f", {count(joined, 'task')}"
    )


def state(traces: Sequence[Trace]) -> str:
    """Return the state of a step in a word or two."""
    failed = [trace.node for trace in traces if trace.facts["error"]]
    if failed:
        return f"failed on {failed[0] if len(failed) == 1 else count(len(failed), 'node')}"
    return "running or interrupted" if traces[0].end is None else "ended"


def share(traces: Sequence[Trace]) -> str:
    """Return the number of nodes with a trace, as "N of TOTAL" if some have none."""
    number, others = len(traces), len(missing(traces))
    return f"{number} of {number + others}" if others else str(number)


def nodes(traces: Sequence[Trace]) -> str:
    number = share(traces)
    return f"{number} node" if number == "1" else f"{number} nodes"


def _phases(traces: Sequence[Trace], columns: int | None) -> Iterator[str]:
    names = list(dict.fromkeys(phase.name for trace in traces for phase in trace.phases))
    rows = [("phase", "median", "min", "max", "slowest", "what happens")]
    for name in names:
        took = {
            trace.node: phase.took
            for trace in traces
            for phase in trace.phases
            if phase.name == name
        }
        values = list(took.values())
        # planned once, on the submit host
        where = "submit host" if name == "plan" else max(took, key=lambda node: took[node])
        row = (_ms(statistics.median(values)), _ms(min(values)), _ms(max(values)))
        rows.append((name, *row, where, PHASES.get(name, "")))
    yield from text_layout.table(rows, columns, right=(1, 2, 3))


def count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 10 else f"{seconds:.1f} s"


_MICRO = 1_000_000


def for_perfetto(step: str, traces: Sequence[Trace]) -> str:
    """Return the JSON text. Each node is a process; the submit host is process 0."""
    events: list[dict[str, Any]] = [_name(0, f"step {step}: submit host")]
    for number, trace in enumerate(traces, 1):
        events.append(_name(number, trace.node))
        events += [_event(number, phase) for phase in trace.on_node]
    events += [_event(0, phase) for phase in traces[0].phases if phase.name == "plan"]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, indent=1)


def _name(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": process, "tid": 1, "args": {"name": name}}


def _event(process: int, phase: Phase) -> dict[str, Any]:
    begin, took = round(phase.begin * _MICRO), round(phase.took * _MICRO)
    return {"ph": "X", "name": phase.name, "pid": process, "tid": 1, "ts": begin, "dur": took}
