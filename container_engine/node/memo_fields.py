"""Encode the fields of memos for ce-node: what an earlier step found out.

A field is a text, encoded as file names are, and a NUL. Functions raise ValueError for a NUL in it.
spank_plugin/node/step_memo.h has the order of the fields about a step.
"""

from __future__ import annotations

import os

from container_engine.node.plan_json import to_json
from container_engine.node.report import trace
from container_engine.node.report.secret_values import secret_stems

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from container_engine.node.node_plan import NodePlan


def field(text: str) -> bytes:
    if "\0" in text:
        raise ValueError("a field cannot have NUL")
    return os.fsencode(text) + b"\0"


def data(content: bytes) -> bytes:
    """Return two fields: the number of bytes, and the bytes, which may include NULs."""
    return b"%d\0%b\0" % (len(content), content)


def table(words: Sequence[str], width: int = 1) -> Iterator[bytes]:
    """Yield the number of entries, each of `width` words, and the words."""
    yield field(str(len(words) // width))
    yield from map(field, words)


def about_step(
    plan: NodePlan, conditions: Sequence[str], variables: Mapping[str, Sequence[str]]
) -> Iterator[bytes]:
    """Yield what ce-node needs for a step: when hooks may apply, and the line of the trace.

    `conditions` are NAME or NAME=pattern, with which a hook may apply. `variables` are the names of
    the tasks' variables by their origin.
    """
    yield from table(conditions)
    yield field(trace.place(plan.trace_dir))
    yield field("{" + _members(trace.of_engine(plan.engine)))
    # no hook with conditions applies in the steps for which the memo is used
    yield field(_members({**trace.of_plan(plan, {}), "variables": variables}))
    yield field(trace.mount_texts(plan.mounts))
    yield from table(secret_stems(plan.secrets))


def _members(values: Mapping[str, object]) -> str:
    return to_json(values)[1:-1] + ","
