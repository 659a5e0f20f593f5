"""Compare this node's starts with those of the cluster, by the site's records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from container_engine.base.errors import UserError
from container_engine.tools import start_records
from container_engine.tools.doctor.finding import Finding, ok, warning

_CHECK = "starts"


def look(path: str, env: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding if the site keeps records, and they have enough starts of this node."""
    if not path:
        return
    node = env.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    try:
        records = start_records.load(path)
    except UserError as error:
        yield warning(_CHECK, str(error), error.hint or "ce metrics writes it")
        return
    known = start_records.usual(records, "nodes", node)
    if known is None:
        return
    factor = f"{known.median:.1f} times the median of the images"
    text = f"{node} starts in {factor} ({known.starts} starts)"
    if node in start_records.slow_nodes(records):
        yield warning(_CHECK, text, "ce trace JOB on a slow start shows the phase")
    else:
        yield ok(_CHECK, text)
