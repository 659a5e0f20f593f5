"""Renders a step's traces as text: the time of each phase, and the slowest node."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from container_engine.trace.record import missing
from container_engine.wrapping import aligned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from container_engine.trace.record import Trace

# factor above the median, and least difference in seconds, that make a node a straggler
_SLOWER, _SLOWER_S = 1.5, 0.05
_NAMED = 8
LABEL_WIDTH = 13


def stragglers(traces: Sequence[Trace]) -> list[Trace]:
    """Return nodes whose start took much longer than the median, the slowest first."""
    if len(traces) < 3:
        return []
    usual = statistics.median(trace.start_took for trace in traces)
    slow = [t for t in traces if t.start_took > max(_SLOWER * usual, usual + _SLOWER_S)]
    return sorted(slow, key=lambda trace: -trace.start_took)


def lines(step: str, traces: Sequence[Trace]) -> Iterator[str]:
    facts = traces[0].facts
    tasks = sum(trace.joined for trace in traces)
    # the number of joined tasks is recorded when a node ends
    ended = all(trace.end is not None for trace in traces)
    joined = f", {count(tasks, 'task')}" if tasks or ended else ""
    yield f"step {step}: {nodes(traces)}{joined}"
    began = min(trace.began for trace in traces)
    yield f"started      {time.strftime('%d %b %Y %H:%M:%S', time.localtime(began))}"
    yield f"environment  {facts['environment']}"
    yield f"image        {facts['image']['name']}  {facts['image']['digest']}".rstrip()
    for hook in facts["hooks"]:
        yield f"hook         {hook['name']} {hook['release']}: {hook['reason']}"
    yield ""
    yield from _phases(traces)
    yield ""
    took = [trace.start_took for trace in traces]
    slowest = traces[took.index(max(took))].node
    usual = _ms(statistics.median(took))
    yield f"until all tasks were in: median {usual}, longest {_ms(max(took))} on {slowest}"
    for trace in stragglers(traces):
        yield f"slow: {trace.node} took {_ms(trace.start_took)}"
    for trace in traces:
        if trace.facts["error"]:
            yield f"failed: {trace.node}: {trace.facts['error']}"
    if others := missing(traces):
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        named = ", ".join(others[:_NAMED])
        yield f"no trace of {named}{more}: still at work, cut off, or not kept here"


def share(traces: Sequence[Trace]) -> str:
    """Return the number of nodes with a trace, as "N of TOTAL" if some have none."""
    number, others = len(traces), len(missing(traces))
    return f"{number} of {number + others}" if others else str(number)


def nodes(traces: Sequence[Trace]) -> str:
    number = share(traces)
    return f"{number} node" if number == "1" else f"{number} nodes"


def _phases(traces: Sequence[Trace]) -> Iterator[str]:
    names = list(dict.fromkeys(phase.name for trace in traces for phase in trace.phases))
    rows = [("phase", "median", "min", "max", "slowest")]
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
        rows.append((name, *row, where))
    yield from aligned(rows, right=(1, 2, 3))


def count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 10 else f"{seconds:.1f} s"
