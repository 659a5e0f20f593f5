"""Converts a step's traces to Chrome's trace event format, for Perfetto and chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from container_engine.tools.trace.reader import Phase, Trace

_MICRO = 1_000_000


def document(step: str, traces: Sequence[Trace]) -> str:
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
