"""Reads the traces of a step: one file for each node, written there as the user."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.files import read_regular
from container_engine.base.process import reason
from container_engine.base.text_layout import natural
from container_engine.node import slurm_step

_VERSION = 1
_STEP = re.compile(r"\d+\.\d+")
_SECOND = 1_000_000_000
_MAX_NODES = 1 << 16
_LAST = 1 << 62  # a time later than any
_IMAGE, _HOOK = ("name", "path", "digest"), ("name", "release", "reason")
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

    @property
    def on_node(self) -> tuple[Phase, ...]:
        """The phases without those of the submit host."""
        return tuple(phase for phase in self.phases if phase.name != "plan")

    @property
    def began(self) -> float:
        """The beginning of the launch in seconds since 1970; 0 if unknown."""
        return self.phases[0].begin if self.phases else 0.0

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

    JOB may also be a task of a job array, 7_3.
    """
    known = steps(directory, uid)
    if wanted == "last" and known:
        return known[0]
    found = of_job(directory, known, wanted)
    if found:
        return found[0]
    hint = f"there are {', '.join(known[:5])}" if known else "no launch has left one"
    hint += f"; as the job's user: su USER -c 'ce trace {wanted}'" if uid == 0 else ""
    raise UserError(f"no trace in {directory}", f"{hint}; `ce trace` lists them", where=wanted)


def of_job(directory: str, known: Sequence[str], wanted: str) -> list[str]:
    """Return the `known` steps that JOB or JOB.STEP names. JOB may be a task of an array, 7_3."""
    job, _dot, number = wanted.partition(".")
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
    """Return the traces of all nodes of a step, sorted by name. Raise UserError."""
    return list(_traces(directory, step))


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
    return next(_traces(directory, step), None)


def _traces(directory: str, step: str) -> Iterator[Trace]:
    place = os.path.join(directory, step)
    try:
        names = sorted(os.listdir(place), key=natural)
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
    return Trace(node, facts, tuple(phases), end.get("joined", 0), stopped)


def _check(facts: Mapping[str, Any], end: Mapping[str, Any]) -> None:
    """Raise TypeError or KeyError for facts unlike a launch's: users can write anything there."""
    image = facts["image"]
    images = (image, *image.get("above", ()))
    names = [one[key] for one in images for key in _IMAGE]
    texts = (facts["environment"], facts.get("container", ""), facts["error"])
    texts += (*names, *facts["files"])
    hooks = [hook[key] for hook in facts["hooks"] for key in _HOOK]
    times = [phase[key] for phase in facts["phases"] for key in ("begin", "end")]
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
