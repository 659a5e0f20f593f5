"""Print what the nodes of a step have read from its image files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from container_engine.base import text_layout
from container_engine.base.text_layout import milliseconds, size_text
from container_engine.node.report.image_reads import FIGURES

Reads = Sequence[Mapping[str, Any]]
_LAST = 1 << 64
_HEAD = ("", "SUM", "MOST", "ON")


class _Row(NamedTuple):
    figure: str
    title: str
    text: Callable[[int], str] = str


def _time(nanoseconds: int) -> str:
    return milliseconds(nanoseconds / 1_000_000_000)


_ROWS = (
    _Row("bytes", "bytes of the file", size_text),
    _Row("reads", "reads of the file"),
    _Row("waited_ns", "time waited for these", _time),
    _Row("requests", "requests of the kernel"),
    _Row("lookups", "requests for a name"),
    _Row("hits", "blocks found in memory"),
    _Row("misses", "blocks read"),
)


def sound(reads: object) -> Reads:
    """Return what a guard may have written: users can write anything into a trace."""
    return [one for one in reads if _is_sound(one)] if isinstance(reads, list) else []


def _is_sound(one: object) -> bool:
    if not isinstance(one, dict):
        return False
    numbers = [one.get(key) for key in (*FIGURES, "size")]
    return (
        all(isinstance(number, int) and 0 <= number < _LAST for number in numbers)
        and isinstance(one.get("path"), str)
        and isinstance(one.get("shared"), bool)
    )


def lines(nodes: Mapping[str, Reads], columns: int | None = None, step: str = "") -> Iterator[str]:
    """Yield a table for each image file: the sum over the nodes, and the node that has most."""
    whose = f"step {step}: " if step else ""
    every = [one for reads in nodes.values() for one in reads]
    for path in dict.fromkeys(one["path"] for one in every):
        of_path = [one for one in every if one["path"] == path]
        shared = ", shared by the steps of the job" if any(o["shared"] for o in of_path) else ""
        size = size_text(max(one["size"] for one in of_path))
        yield ""
        yield f"{whose}read since the mount{shared}: {path} ({size})"
        rows = [_cells(row, path, nodes) for row in _ROWS]
        yield from text_layout.table([_HEAD, *rows], columns, right=(1, 2))


def _cells(row: _Row, path: str, nodes: Mapping[str, Reads]) -> tuple[str, str, str, str]:
    by_node = {
        node: sum(one[row.figure] for one in reads if one["path"] == path)
        for node, reads in nodes.items()
    }
    most = max(by_node, key=lambda node: by_node[node])
    return row.title, row.text(sum(by_node.values())), row.text(by_node[most]), most
