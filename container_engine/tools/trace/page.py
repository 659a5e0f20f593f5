"""Renders a step's traces as one HTML page: a timeline with a row per node, and what was launched.

The page is self-contained: it needs no script, font or network connection.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from container_engine.tools.trace.table import lines, nodes, stragglers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from container_engine.tools.trace.reader import Phase, Trace

COLOURS = {
    "launch": "#577590",
    "prepare": "#43aa8b",
    "namespaces": "#90be6d",
    "mount": "#f9c74f",
    "hooks": "#b56576",
    "create": "#f8961e",
    "init": "#f3722c",
    "environment": "#4d908e",
    "services": "#9d4edd",
    "startup": "#e56b6f",
    "answer": "#277da1",
    "first join": "#1d3557",
    "last join": "#a8b8d0",
}
_OTHER = "#999999"
_ROW, _BAR, _LEFT, _WIDTH, _TOP = 22, 16, 130, 900, 30
_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1100px; color: #1b1b1b }
h1 { font-size: 1.4rem } pre { background: #f4f4f4; padding: 1rem; overflow-x: auto }
.key span { display: inline-block; margin-right: 1rem; white-space: nowrap }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .3em }
svg text { font: 12px system-ui, sans-serif } .slow { fill: #c1121f; font-weight: bold }
"""


def page(step: str, traces: Sequence[Trace]) -> str:
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f"<title>step {escape(step)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>Start of step {escape(step)} on {nodes(traces)}</h1>",
            *_key(traces),
            *_timeline(traces),
            f"<pre>{escape(chr(10).join(lines(step, traces)))}</pre>",
            *_facts(traces[0]),
            "</body></html>\n",
        ]
    )


def _key(traces: Sequence[Trace]) -> Iterator[str]:
    names = dict.fromkeys(phase.name for trace in traces for phase in trace.on_node)
    spans = (
        f'<span><i style="background:{COLOURS.get(name, _OTHER)}"></i>{escape(name)}</span>'
        for name in names
    )
    yield f'<p class="key">{"".join(spans)}</p>'


def _timeline(traces: Sequence[Trace]) -> Iterator[str]:
    """Draw the phases of all nodes, from the first that began.

    Times are by each host's own clock, and clocks differ.
    """
    phases = [phase for trace in traces for phase in trace.on_node]
    first = min(phase.begin for phase in phases)
    scale = _WIDTH / max(max(phase.end for phase in phases) - first, 1e-6)
    slow = {trace.node for trace in stragglers(traces)}
    height = _TOP + _ROW * len(traces) + 10
    yield f'<svg role="img" viewBox="0 0 {_LEFT + _WIDTH + 20} {height}" width="100%">'
    yield from _axis(_WIDTH / scale, scale, height)
    for row, trace in enumerate(traces):
        top = _TOP + _ROW * row
        kind = ' class="slow"' if trace.node in slow or trace.facts["error"] else ""
        place = f'x="{_LEFT - 8}" y="{top + 13}" text-anchor="end"'
        cause = trace.facts["error"]
        title = f"<title>{escape(cause)}</title>" if cause else ""
        mark = "failed: " if cause else ""
        yield f"<text {place}{kind}>{mark}{escape(trace.node)}{title}</text>"
        for phase in trace.on_node:
            yield _bar(phase, _LEFT + (phase.begin - first) * scale, top, phase.took * scale)
    yield "</svg>"


def _axis(seconds: float, scale: float, height: int) -> Iterator[str]:
    """Draw about eight marks at round numbers of milliseconds."""
    step = next(
        (n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if seconds * 125 <= n),
        round(seconds * 125),
    )
    for mark in range(0, int(seconds * 1000) + 1, step):
        x = _LEFT + mark / 1000 * scale
        yield f'<line x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{height}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{_TOP - 12}" text-anchor="middle">{mark} ms</text>'


def _bar(phase: Phase, x: float, top: int, width: float) -> str:
    colour = COLOURS.get(phase.name, _OTHER)
    title = f"{escape(phase.name)}: {1000 * phase.took:.2f} ms"
    return (
        f'<rect x="{x:.2f}" y="{top}" width="{max(width, 0.5):.2f}" height="{_BAR}"'
        f' fill="{colour}"><title>{title}</title></rect>'
    )


def _facts(trace: Trace) -> Iterator[str]:
    facts = trace.facts
    yield "<h1>What was launched</h1><pre>"
    for file in facts["files"]:
        yield escape(f"file      {file}")
    yield escape(f"image     {facts['image']['path']}")
    for part in facts["image"].get("above", ()):
        yield escape(f"above it  {part['path']}")
    for mount in facts["mounts"]:
        yield escape(f"mount     {mount['source']} on {mount['target']}  ({mount['from']})")
    for source, names in facts["variables"].items():
        yield escape(f"variables {source}: {' '.join(sorted(names)) or '-'}")
    yield "</pre>"
