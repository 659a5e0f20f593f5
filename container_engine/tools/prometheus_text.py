"""Write the records of starts for the textfile collector of Prometheus's node_exporter."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from container_engine.base.errors import UserError
from container_engine.base.process import reason
from container_engine.tools import start_records

if TYPE_CHECKING:
    from prometheus_client import Metric

_PREFIX = "container_engine"


def write(path: str, records: Mapping[str, Any], images: int) -> None:
    """Replace the file atomically; `images` are how many of them have a median. Raise UserError."""
    try:
        from prometheus_client import CollectorRegistry, write_to_textfile
        from prometheus_client.registry import Collector
    except ImportError:
        hint = f"pip --python {sys.executable} install 'prometheus_client>=0.20'"
        raise UserError("--textfile needs the package prometheus_client", hint) from None

    class Records(Collector):
        def collect(self) -> Iterator[Metric]:
            return _metrics(records, images)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Records())
    # node_exporter runs as a user of its own
    given = os.umask(0o022)
    try:
        write_to_textfile(path, registry)
    except OSError as error:
        raise UserError(reason(error), where=path) from None
    finally:
        os.umask(given)


def _metrics(records: Mapping[str, Any], images: int) -> Iterator[Metric]:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    starts = CounterMetricFamily(
        f"{_PREFIX}_starts", "Containers started on nodes, by result.", labels=["result"]
    )
    for result, count in records["starts"].items():
        starts.add_metric([result], count)
    yield starts
    phases = HistogramMetricFamily(
        f"{_PREFIX}_start_phase_seconds", "Time of each phase of a start.", labels=["phase"]
    )
    for name, (*counts, total) in records["phases"].items():
        limits = [*map(str, start_records.BUCKETS), "+Inf"]
        phases.add_metric([name], list(zip(limits, accumulate(counts), strict=True)), total)
    yield phases
    reads = records["reads"]
    for name, text, value in (
        ("image_read_bytes", "Bytes that image servers have read.", reads["bytes"]),
        ("image_reads", "Reads of image servers.", reads["reads"]),
        (
            "image_wait_seconds",
            "Time that image servers waited for reads.",
            reads["waited_ns"] / 1e9,
        ),
        ("imports", "Images imported into stores of the site.", records["imports"]),
    ):
        yield CounterMetricFamily(f"{_PREFIX}_{name}", text, value=value)
    for name, text, number in (
        ("records_timestamp_seconds", "Until when starts are counted.", records["until"]),
        (
            "slow_nodes",
            "Nodes whose starts take twice the medians of their images, or longer.",
            len(start_records.slow_nodes(records)),
        ),
    ):
        yield GaugeMetricFamily(f"{_PREFIX}_{name}", text, value=number)
    medians = GaugeMetricFamily(
        f"{_PREFIX}_image_start_median_seconds",
        "Median of the starts of an image, by its hash.",
        labels=["image"],
    )
    # those with the most starts
    chosen = sorted(records["images"], key=lambda key: -records["images"][key][0])[:images]
    for key in chosen:
        if known := start_records.usual(records, "images", key):
            medians.add_metric([key], known.median)
    if images:
        yield medians
