"""Read the traces of a step, and print them as text or for Perfetto.

The user's launch writes one file on each node. The text has the time of each phase and the slowest
node; Perfetto and chrome://tracing read Chrome's trace event format.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from container_engine.base import text_layout
from container_engine.base.errors import UserError
from container_engine.base.files import owner_name, read_regular
from container_engine.base.process import reason
from container_engine.base.text_layout import milliseconds, natural
from container_engine.node import slurm_step
from container_engine.tools import image_reads

_VERSION = 1
_STEP = re.compile(r"\d+\.\d+")
_SECOND = 1_000_000_000
_MAX_NODES = 1 << 16
_LAST = 1 << 62  # a time later than any
_IMAGE, _HOOK = ("name", "path", "digest"), ("name", "release", "reason")
# two steps of one number: Slurm waits longer before it requeues a job, and clocks differ by less
_RUNS_APART_S = 5.0
_MOST = 1 << 20  # largest size of a node's trace in bytes; the usual size is a few thousand


class Phase(NamedTuple):
    """A phase of a launch. Times are in seconds since 1970, by the clock of its host."""

    name: str
    begin: float
    end: float

    @property
    def took(self) -> float:
        return self.end - self.begin


class Trace(NamedTuple):
    """The launch on one node. `end` is None while the step runs, or if it was not recorded."""

    node: str
    facts: Mapping[str, Any]
    phases: tuple[Phase, ...]
    joined: int = 0
    end: float | None = None
    reads: image_reads.Reads = ()  # what was read from image files, once it has ended

    @property
    def on_node(self) -> tuple[Phase, ...]:
        """The phases without those of the submit host."""
        return tuple(phase for phase in self.phases if phase.name != "plan")

    @property
    def began(self) -> float:
        """The beginning of the launch in seconds since 1970; 0 if unknown."""
        return self.phases[0].begin if self.phases else 0.0

    @property
    def planned(self) -> float:
        """The time at which srun made its plan, in seconds since 1970; 0 if unknown."""
        return self.began if self.phases[:1] != self.on_node[:1] else 0.0

    @property
    def seen(self) -> float:
        """The last time of which the trace tells, in seconds since 1970."""
        return max((self.end or 0.0, *(phase.end for phase in self.phases)))

    @property
    def start_took(self) -> float:
        """The time from the start of the launcher to the last task that joined, in seconds."""
        return self.on_node[-1].end - self.on_node[0].begin if self.on_node else 0.0


def steps(directory: str, uid: int, since: float = 0) -> list[str]:
    """Return JOB.STEP of the traces that `uid` can trust, the newest first. Raise UserError.

    Directories that have not changed after `since`, in seconds since 1970, are left out.
    """
    found = []
    try:
        for entry in os.scandir(directory):
            # a launch may remove an old step meanwhile
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                trusted = _STEP.fullmatch(entry.name) and _is_credible(status, uid)
                if trusted and status.st_mtime >= since:
                    found.append((status.st_mtime, entry.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(reason(error), where=directory) from None
    return [name for _changed, name in sorted(found, key=lambda pair: -pair[0])]


def _is_credible(status: os.stat_result, uid: int) -> bool:
    """Accept directories of `uid` only, or all for root.

    If the traces of all users are in one place, any user can put a directory there.
    """
    return stat.S_ISDIR(status.st_mode) and uid in (0, status.st_uid)


def choose(directory: str, wanted: str, uid: int) -> str:
    """Return JOB.STEP for JOB (its newest step), JOB.STEP or `last`. Raise UserError.

    JOB may also be a task of a job array, 7_3. Components count as the whole: 7+1, 7+1.0, 7.0+1.
    """
    known = steps(directory, uid)
    if wanted == "last" and known:
        return known[0]
    found = of_job(directory, known, wanted)
    if found:
        return found[0]
    _refuse_others(directory, wanted, uid)
    hint = f"there are {', '.join(known[:5])}" if known else "no launch has left one"
    hint += f"; as the job's user: su USER -c 'ce trace {wanted}'" if uid == 0 else ""
    raise UserError(f"no trace in {directory}", f"{hint}; `ce trace` lists them", where=wanted)


def _refuse_others(directory: str, wanted: str, uid: int) -> None:
    """Raise UserError if JOB or JOB.STEP has a trace of another user."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            owner = os.stat(f"{directory}/{name}", follow_symlinks=False).st_uid
            if wanted in (name, name.partition(".")[0]) and uid not in (0, owner):
                raise UserError(
                    f"it is a job of {owner_name(owner)}, and traces are private",
                    "its user or root can read them",
                    where=wanted,
                )


def of_job(directory: str, known: Sequence[str], wanted: str) -> list[str]:
    """Return the `known` steps that JOB or JOB.STEP names (see choose)."""
    # all components of a job or step have the numbers of the first
    job, _dot, number = re.sub(r"\+\d+", "", wanted).partition(".")
    is_array = "_" in job
    return [
        step
        for step in known
        if number in ("", step.partition(".")[2])
        and (_array(directory, step) if is_array else step.partition(".")[0]) == job
    ]


def _array(directory: str, step: str) -> str:
    trace = first(directory, step)
    return str(trace.facts.get("array", "")) if trace is not None else ""


def read(directory: str, step: str) -> list[Trace]:
    """Return the traces of all nodes of a step, sorted by name. Raise UserError.

    Those of an earlier run of a requeued job, which had other nodes, are left out.
    """
    found = list(_traces(directory, step))
    planned = max((trace.planned for trace in found), default=0.0)
    # srun's host has planned for all, so that a node's own clock may be wrong
    return [one for one in found if (one.planned or one.seen) + _RUNS_APART_S > planned]


def whole(directory: str, step: str) -> list[Trace]:
    """Return what `read` does. Raise UserError, with the reason, if no trace can be read."""
    found = read(directory, step)
    if found:
        return found
    place = f"{directory}/{step}"
    files = [f"{place}/{name}" for name in os.listdir(place) if name.endswith(".json")]
    contents = [list(_documents(path)) for path in files]
    versions = {one["version"] for documents in contents for one in documents if "version" in one}
    if versions - {_VERSION}:
        other = f"format {max(map(str, versions))}, and this engine reads format {_VERSION}"
        raise UserError(f"its traces have {other}", "use the engine that wrote them", where=step)
    if versions or any(os.path.getsize(p) for p, c in zip(files, contents, strict=True) if not c):
        raise UserError("its traces are damaged", "the step itself was not affected", where=step)
    raise UserError("its traces are not complete", "the step may still be starting", where=step)


def missing(traces: Sequence[Trace]) -> list[str]:
    """Return the nodes of the step that have no trace, or none yet, in Slurm's order."""
    there = {trace.node for trace in traces}
    lists = dict.fromkeys(str(trace.facts.get("nodes", "")) for trace in traces)
    try:
        named = [name for nodes in lists for name in islice(slurm_step.expand(nodes), _MAX_NODES)]
    except ValueError:
        return []
    return [name for name in dict.fromkeys(named) if name and name not in there]


def first(directory: str, step: str) -> Trace | None:
    """Return one node's trace, or None, for facts that all nodes share. Raise UserError."""
    return next(_traces(directory, step, _newest_first), None)


def _newest_first(path: str) -> float:
    return -os.stat(path, follow_symlinks=False).st_mtime


def _traces(directory: str, step: str, order: Callable[[str], Any] = natural) -> Iterator[Trace]:
    place = os.path.join(directory, step)
    try:
        names = sorted(os.listdir(place), key=lambda name: order(f"{place}/{name}"))
    except FileNotFoundError:
        return  # a launch has just removed it as an old one
    except OSError as error:
        raise UserError(reason(error), where=place) from None
    for name in names:
        trace = _read(f"{place}/{name}") if name.endswith(".json") else None
        if trace is not None:
            yield trace


def _read(path: str) -> Trace | None:
    """Return the trace in a file, or None if it is not complete yet or of another version.

    The line about the container's end is the first if it ended before its launcher.
    """
    documents = list(_documents(path))
    facts = next((document for document in documents if "version" in document), {})
    if facts.get("version") != _VERSION:
        return None
    try:
        return _understood(path, facts, documents)
    except (KeyError, TypeError, AttributeError):
        return None


def _understood(path: str, facts: dict[str, Any], documents: Sequence[dict[str, Any]]) -> Trace:
    end = next((document for document in documents if "end" in document), {})
    _check(facts, end)
    phases = [
        Phase(phase["name"], phase["begin"] / _SECOND, phase["end"] / _SECOND)
        for phase in facts["phases"]
    ]
    if end.get("first_join"):
        phases += _joins(phases, end)
    node = os.path.basename(path).removesuffix(".json")
    stopped = end["end"] / _SECOND if end else None
    reads = image_reads.sound(end.get("image_reads"))
    return Trace(node, facts, tuple(phases), end.get("joined", 0), stopped, reads)


def _check(facts: Mapping[str, Any], end: Mapping[str, Any]) -> None:
    """Raise TypeError or KeyError for facts unlike a launch's: users can write anything there."""
    image = facts["image"]
    images = (image, *image.get("above", ()))
    names = [one[key] for one in images for key in _IMAGE]
    texts = (facts["environment"], facts.get("container", ""), facts["error"])
    texts += (*names, *facts["files"], *facts.get("warnings", ()))
    hooks = [hook[key] for hook in facts["hooks"] for key in _HOOK]
    checks = facts.get("checks", [])
    texts += (*(one[key] for one in checks for key in ("name", "of", "verdict", "problem")),)
    times = [one[key] for one in (*facts["phases"], *checks) for key in ("begin", "end")]
    times += [end[key] for key in ("end", "first_join", "last_join", "joined") if key in end]
    if not all(isinstance(text, str) for text in (*texts, *hooks)):
        raise TypeError
    if not times or not all(isinstance(when, int) and 0 <= when < _LAST for when in times):
        raise TypeError


def content(path: str) -> str:
    """Return the text of a node's trace or log. Raise UserError if it cannot be read.

    Return "" for a file that no node can have written: root reads the traces of all users, who may
    put a symlink, a pipe or an endless file there.
    """
    try:
        owner = os.stat(os.path.dirname(path), follow_symlinks=False).st_uid

        def judge(status: os.stat_result) -> None:
            if status.st_uid != owner:
                raise OSError(errno.EINVAL, "another user's")

        return read_regular(path, _MOST, judge).decode("utf-8", "replace")
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENOENT, errno.EINVAL, errno.EFBIG):
            return ""
        raise UserError(reason(error), where=path) from None


def _joins(phases: Sequence[Phase], end: Mapping[str, int]) -> list[Phase]:
    """Return the phases in which tasks join.

    Tasks join once the launcher answers; the first may have joined before the launcher ends.
    """
    first, last = end["first_join"] / _SECOND, end["last_join"] / _SECOND
    answered = phases[-1].begin if phases else first
    return [Phase("first join", min(answered, first), first), Phase("last join", first, last)]


def _documents(path: str) -> Iterator[dict[str, Any]]:
    for line in content(path).split("\n"):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            return
        if isinstance(document, dict):
            yield document


# factor above the median, and least difference in seconds, that make a node a straggler
_SLOWER, _SLOWER_S = 1.5, 0.05
_MOST_LINES = 20
LABEL_WIDTH = 13


# what happens in each phase of a launch
PHASES = {
    "plan": "srun makes a plan of the environment",
    "launch": "slurmstepd hands the plan to the node's launcher",
    "prepare": "the launcher looks at image, mounts, devices, hooks",
    "host checks": "programs of checks before there is a container",
    "namespaces": "the user's namespaces are created",
    "mount": "the image is mounted",
    "hooks": "hooks add libraries, devices, files",
    "create": "crun or Podman creates the container",
    "init": "its first process starts, with the entrypoint",
    "environment": "the tasks' variables are put together",
    "services": "services of hooks start",
    "startup": "the start-up lines run",
    "checks": "programs of checks in the container",
    "answer": "the launcher reports that the container is ready",
    "first join": "until the first task is in the container",
    "last join": "until the last task is in the container",
}


def _median(values: Iterable[float]) -> float:
    # `ce ps` and `ce exec` read traces, and ask for no median
    from statistics import median

    return median(values)


def stragglers(traces: Sequence[Trace]) -> list[Trace]:
    """Return nodes whose start took much longer than the median, the slowest first."""
    if len(traces) < 3:
        return []
    usual = _median(trace.start_took for trace in traces)
    slow = [t for t in traces if t.start_took > max(_SLOWER * usual, usual + _SLOWER_S)]
    return sorted(slow, key=lambda trace: -trace.start_took)


def lines(
    step: str, traces: Sequence[Trace], columns: int | None = None, slow: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the lines on a step; its table fits a terminal of `columns`.

    `slow` are lines on nodes that are slow by the records of the site; else stragglers are named.
    """
    facts = traces[0].facts
    yield f"step {step}: {nodes(traces)}{_tasks(traces)}"
    yield from _first(_failures(traces))
    began = min(trace.began for trace in traces)
    yield f"started      {time.strftime('%d %b %Y %H:%M:%S', time.localtime(began))}"
    yield f"environment  {facts['environment']}"
    yield f"image        {facts['image']['name']}  {facts['image']['digest']}".rstrip()
    for part in facts["image"].get("above", ()):
        yield f"  above it   {part['name']}  {part['digest']}".rstrip()
    for hook in facts["hooks"]:
        yield f"hook         {hook['name']} {hook['release']}: {hook['reason']}"
    yield from _first(_checks(traces))
    yield ""
    yield from _phases(traces, columns)
    yield from image_reads.lines({trace.node: trace.reads for trace in traces}, columns)
    yield ""
    took = [trace.start_took for trace in traces]
    slowest = traces[took.index(max(took))].node
    usual = milliseconds(_median(took))
    times = f"median {usual}, max {milliseconds(max(took))} ({slowest})"
    yield f"time until all tasks had started: {times}"
    late = (f"slow: {one.node} took {milliseconds(one.start_took)}" for one in stragglers(traces))
    yield from _first(slow or late)
    if others := missing(traces):
        named = slurm_step.contract(others)
        yield f"no trace of {named}: still starting, interrupted, or not kept here"


def _failures(traces: Sequence[Trace]) -> Iterator[str]:
    nodes: dict[str, list[str]] = {}
    for trace in traces:
        nodes.setdefault(trace.facts["error"], []).append(trace.node)
    nodes.pop("", None)
    return (f"failed: {slurm_step.contract(them)}: {error}" for error, them in nodes.items())


def _checks(traces: Sequence[Trace]) -> Iterator[str]:
    took: dict[tuple[str, str], dict[str, float]] = {}
    for trace in traces:
        for check in trace.facts.get("checks", ()):
            times = took.setdefault(_check_texts(check), {})
            times[trace.node] = (check["end"] - check["begin"]) / _SECOND
    for (what, problem), times in took.items():
        most = "at most " if len(times) > 1 else ""
        longest = f"{most}{milliseconds(max(times.values()))}"
        yield f"check        {slurm_step.contract(times)}: {what} in {longest}{problem}"


def _check_texts(check: Mapping[str, Any]) -> tuple[str, str]:
    """Return what comes before and after its time. Each node of a ring has another peer."""
    peer = f" of {check['peer']}" if check["problem"] and check.get("peer") else ""
    who = f" ({check['role']}{peer})" if check.get("peer") else ""
    problem = f": {check['problem']}" if check["problem"] else ""
    return f"{check['of']}: {check['name']}{who}: {check['verdict']}", problem


def _first(lines: Iterable[str]) -> Iterator[str]:
    """Yield the first lines, and how many more there are: thousands of nodes may all differ."""
    every = list(lines)
    yield from every[:_MOST_LINES]
    if every[_MOST_LINES:]:
        yield f"and {len(every) - _MOST_LINES} more such lines: see ce trace --json"


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
        row = (milliseconds(_median(values)), milliseconds(min(values)), milliseconds(max(values)))
        rows.append((name, *row, where, PHASES.get(name, "")))
    yield from text_layout.table(rows, columns, right=(1, 2, 3))


def count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


_MICRO = 1_000_000


def for_perfetto(step: str, traces: Sequence[Trace]) -> str:
    """Return the JSON text. Each node is a process; the submit host is process 0."""
    events: list[dict[str, Any]] = [_name(0, f"step {step}: submit host")]
    for number, trace in enumerate(traces, 1):
        events.append(_name(number, trace.node))
        events += [_event(number, phase) for phase in trace.on_node]
        events += [_reads(number, trace.seen, one) for one in trace.reads]
    events += [_event(0, phase) for phase in traces[0].phases if phase.name == "plan"]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, indent=1)


def _name(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": process, "tid": 1, "args": {"name": name}}


def _event(process: int, phase: Phase) -> dict[str, Any]:
    begin, took = round(phase.begin * _MICRO), round(phase.took * _MICRO)
    return {"ph": "X", "name": phase.name, "pid": process, "tid": 1, "ts": begin, "dur": took}


def _reads(process: int, ended: float, one: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point at the end of a node's step, whose details are what it read from an image."""
    name = f"read from {one['path']}"
    point = {"ph": "i", "name": name, "pid": process, "tid": 1, "ts": round(ended * _MICRO)}
    return {**point, "args": {**one}}
