"""Count the starts of a cluster, with what they usually take, in one bounded file.

An administrator has it written from the traces of all users, by `ce metrics`; users read it. It
has no user, job, command, variable or path, and images only by a hash. Users can write what they
like into their traces.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.files import read_regular, replace
from container_engine.base.process import reason
from container_engine.base.text_layout import milliseconds
from container_engine.tools import step_traces

VERSION = 1
# upper limits in seconds; the last list of numbers of a phase is beyond all of them
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_JOINS = ("first join", "last join")
_MOST_BYTES = 16 << 20
_MOST = {"images": 200, "nodes": 20_000, "shared": 5_000, "running": 20_000}
_SAMPLES = {"images": 301, "nodes": 9}  # the newest, of each image and node
_ENOUGH = {"images": 10, "nodes": 5}  # with fewer, nothing is said
# a start is counted when its trace must be there, on the slowest of file servers
_SETTLED_S, _LONGEST_START_S = 60.0, 3600.0
_LONGEST_S = 86_400.0
_SLOW, _SLOW_S = 2.0, 0.1  # factor above the median, and least difference
_FIGURES = ("bytes", "reads", "waited_ns")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Usual(NamedTuple):
    """The median of an image's starts in seconds, or of a node's factors, and of how many."""

    median: float
    starts: int


def empty() -> dict[str, Any]:
    return {
        "version": VERSION,
        "until": 0.0,
        "starts": {"ok": 0, "failed": 0},
        "phases": {},
        "reads": dict.fromkeys(_FIGURES, 0),
        "imports": 0,
        "images": {},
        "nodes": {},
        "shared": {},
        "running": [],
    }


def load(path: str) -> dict[str, Any]:
    """Return the records, empty if there is no file yet. Raise UserError."""
    try:
        found = json.loads(read_regular(path, _MOST_BYTES, follow=True))
    except FileNotFoundError:
        return empty()
    except OSError as error:
        raise UserError(reason(error), where=path) from None
    except ValueError:
        found = None
    first = empty()
    if (
        not isinstance(found, dict)
        or found.get("version") != VERSION
        or found.keys() != first.keys()
    ):
        raise UserError(
            "damaged, or written by another version", "remove it: counting begins again", where=path
        )
    return found


def write(path: str, records: Mapping[str, Any]) -> None:
    """Replace the file atomically; everybody can read it. Raise UserError."""
    try:
        replace(path, json.dumps(records, separators=(",", ":")).encode() + b"\n", 0o644)
    except OSError as error:
        raise UserError(reason(error), where=path) from None


def image_key(image: Mapping[str, Any]) -> str:
    """Return the hash of the images of a trace, by which the records know them."""
    parts = (image, *image.get("above", ()))
    named = "\0".join(str(part["digest"] or part["path"]) for part in parts)
    return hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def usual(records: Mapping[str, Any], table: str, key: str) -> Usual | None:
    """Return the median in the table "images" or "nodes"; None if there are too few starts."""
    _total, *samples = records[table].get(key, (0,))
    return Usual(median(samples), len(samples)) if len(samples) >= _ENOUGH[table] else None


def slow_lines(records: Mapping[str, Any], traces: Sequence[step_traces.Trace]) -> Iterator[str]:
    """Yield a sentence for each node whose start took far longer than the image's usually do."""
    known = usual(records, "images", image_key(traces[0].facts["image"])) if traces else None
    for trace in sorted(traces, key=lambda one: -ready_took(one)) if known else ():
        took = ready_took(trace)
        if known and took > max(_SLOW * known.median, known.median + _SLOW_S):
            factor = f"{took / known.median:.1f} times the median of this image"
            of = f"{milliseconds(known.median)} over {known.starts} starts"
            yield f"slow: {trace.node} started in {factor} ({of})"


def slow_nodes(records: Mapping[str, Any]) -> list[str]:
    """Return the nodes that usually take twice as long as the images' medians, or longer."""
    found = ((node, usual(records, "nodes", node)) for node in records["nodes"])
    return [node for node, one in found if one is not None and one.median >= _SLOW]


def ready_took(trace: step_traces.Trace) -> float:
    """Return the time until the container was ready, in seconds; 0 if the step only joined one."""
    own = [phase for phase in trace.on_node if phase.name not in _JOINS]
    made = any(phase.name == "create" for phase in own)
    return own[-1].end - own[0].begin if made else 0.0


class Update:
    """Adds to the records what has happened since they were written, each start once.

    A start belongs to the time at which it was over, a figure of what was read to the end of its
    step: so no record of single steps is needed but of those that run. `unread` are steps whose
    traces this process may not read.
    """

    def __init__(self, records: dict[str, Any], now: float) -> None:
        self._all = records
        self._since, self.until = float(records["until"]), now - _SETTLED_S
        self.unread: list[str] = []

    def add(self, directory: str) -> None:
        """Add the traces in a directory. Raise UserError if it cannot be read."""
        since = max(0.0, self._since - _LONGEST_START_S)
        names = {*step_traces.steps(directory, 0, since), *self._all["running"]}
        running = []
        for name in sorted(names):
            try:
                traces = step_traces.read(directory, name)
            except FileNotFoundError:
                continue  # removed meanwhile
            except (UserError, OSError):
                self.unread.append(name)
                continue
            if self._add_step(name.partition(".")[0], traces):
                running.append(name)
        self._all["running"] = running[-_MOST["running"] :]
        self._all["until"] = max(self._since, self.until)

    def add_imports(self, times: Sequence[float]) -> None:
        """Add images of the site's stores, by the times of their import."""
        self._all["imports"] += sum(map(self._is_new, times))

    def _is_new(self, when: float) -> bool:
        return self._since < when <= self.until

    def _add_step(self, job: str, traces: Sequence[step_traces.Trace]) -> bool:
        """Add what is new of a step; return whether more may come."""
        new = [trace for trace in traces if self._is_new(_over(trace))]
        good = [trace for trace in new if not trace.facts["error"]]
        self._all["starts"]["ok"] += len(good)
        self._all["starts"]["failed"] += len(new) - len(good)
        for trace in good:
            self._add_phases(trace)
        made = [trace for trace in good if 0 < ready_took(trace) < _LONGEST_S]
        if made:
            self._add_times(image_key(made[0].facts["image"]), made)
        for trace in traces:
            if trace.end is not None and self._is_new(trace.end):
                self._add_reads(job, trace)
        return any(_may_go_on(trace, self.until) for trace in traces)

    def _add_phases(self, trace: step_traces.Trace) -> None:
        for phase in trace.phases:
            if phase.name in step_traces.PHASES and 0 <= phase.took < _LONGEST_S:
                counts = self._all["phases"].setdefault(phase.name, [0] * (len(BUCKETS) + 2))
                counts[bisect_left(BUCKETS, phase.took)] += 1
                counts[-1] += phase.took  # the sum

    def _add_times(self, image: str, made: Sequence[step_traces.Trace]) -> None:
        """Add one sample of the image, whatever the number of nodes, and one of each node."""
        known = usual(self._all, "images", image)
        self._sample("images", image, round(median(map(ready_took, made)), 4))
        for trace in made if known else ():
            if known and known.median and _NODE.fullmatch(trace.node):
                self._sample("nodes", trace.node, round(ready_took(trace) / known.median, 2))

    def _sample(self, table: str, key: str, value: float) -> None:
        total, *samples = self._all[table].get(key, (0,))
        self._put(table, key, [total + 1, *[*samples, value][-_SAMPLES[table] :]])

    def _put(self, table: str, key: str, value: object) -> None:
        """Put an entry last, and forget the one that was not changed for the longest time."""
        entries = self._all[table]
        entries.pop(key, None)
        entries[key] = value
        if len(entries) > _MOST[table]:
            del entries[next(iter(entries))]

    def _add_reads(self, job: str, trace: step_traces.Trace) -> None:
        for one in trace.reads:
            figures = [min(one[name], 1 << 50) for name in _FIGURES]
            before = [0] * len(figures)
            if one["shared"]:  # the figures are those of all steps of the job so far
                what = f"{job}\0{trace.node}\0{one['path']}".encode("utf-8", "surrogateescape")
                key = hashlib.sha256(what).hexdigest()[:16]
                before = self._all["shared"].get(key, before)
                self._put("shared", key, figures)
            for name, now, was in zip(_FIGURES, figures, before, strict=True):
                self._all["reads"][name] += max(0, now - was)


def _over(trace: step_traces.Trace) -> float:
    return max((p.end for p in trace.phases if p.name not in _JOINS), default=0.0)


def _may_go_on(trace: step_traces.Trace, until: float) -> bool:
    """Check for a start or an end that is still to be counted; a lost node's step never ends."""
    last = trace.end or _over(trace)
    ends = trace.end is None and not trace.facts["error"] and until - last < 30 * _LONGEST_S
    return ends or last > until
