"""Ask each node of an allocation, by a step in the container, and remember bad nodes in a file."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from statistics import median
from typing import NamedTuple

from container_engine.base import slurm
from container_engine.base.errors import CeError, UserError
from container_engine.base.files import replace
from container_engine.base.process import reason
from container_engine.submit.prepare import AGAIN
from container_engine.tools import step_traces
from container_engine.tools.verdicts import (
    ANSWER,
    FAILED,
    GOOD,
    RANKS,
    SILENT,
    UNKNOWN,
    Heard,
    Verdict,
    judged,
    of_ranks,
)

# the container's first program, which is in any image
_TASK = ("/dev/.ce-init", "--print", ANSWER)
# where a task finds the program that asks MPI
_ASK = "/dev/.ce-ask"
# steps of one node each, for those that did not answer the step of all
_AT_ONCE = 16
_DAY_S = 86400
# a node that was silent may only have been slow, or out of reach for a while
_REMEMBERED_S, _SILENT_S = 7 * _DAY_S, _DAY_S
_NODE = re.compile(r"[\w.-]+")
_FORM = "each line is NODE # TIME REASON: correct it or remove it"


class Question(NamedTuple):
    """What each node is asked. `traces` is the directory of `uid`'s traces, "" for none.

    `mpi` is the value of srun's --mpi by which ranks must find one another, "" for no MPI; `ask` is
    the program that they run then. `component` has srun's options for one of a heterogeneous job.
    """

    environment: str
    limit_s: float
    traces: str
    uid: int
    env: Mapping[str, str]
    mpi: str = ""
    ask: str = ""
    component: tuple[str, ...] = ()


def longest_checks(plan: str) -> float:
    """Return for how long checks may run: those on the node first, then those in the container."""
    document = json.loads(plan)
    runs = [run for hook in document.get("hooks", ()) for run in hook.get("runs", ())]
    limits: dict[bool, list[float]] = {True: [0], False: [0]}
    for run in (*document.get("runs", ()), *runs):
        limits[run["inside"]].append(run["limit_s"])
    return sum(map(max, limits.values()))


def vet(nodes: Sequence[str], question: Question) -> list[Verdict]:
    """Return the verdict on each node.

    A pair that fails does not tell which of its two nodes is bad. If one of them is bad anyway, or
    fails with its other neighbour too, the other one is asked again without it. Raise UserError if
    the job has ended, for that is no node's fault.
    """
    found = _ask(nodes, question, time.monotonic() + question.limit_s)
    bad = {one.node for one in found if one.verdict != GOOD and len(one.failed_pairs) != 1}
    again = [
        one.node
        for one in found
        if one.verdict == FAILED and one.failed_pairs and one.failed_pairs <= bad - {one.node}
    ]
    deadline = time.monotonic() + question.limit_s
    newer = {one.node: one for one in (_ask(again, question, deadline) if again else ())}
    found = [newer.get(one.node, one) for one in found]
    found = _with_mpi(found, question) if question.mpi else found
    if any(one.verdict == SILENT for one in found) and not _is_running(question):
        raise UserError("vet: the job has ended, so no node is judged", "give the job more time")
    return found


def _is_running(question: Question) -> bool:
    """Check whether the job runs, or Slurm cannot say."""
    try:
        argv = ["squeue", "--noheader", "--format=%T", f"--jobs={question.env['SLURM_JOB_ID']}"]
        return not {"RUNNING", "SUSPENDED"}.isdisjoint(slurm.answer(argv, question.env).split())
    except CeError:
        return True


def _with_mpi(found: Sequence[Verdict], question: Question) -> list[Verdict]:
    """Return the verdicts after MPI has started on all good nodes together.

    A rank that is lost may leave all of them without an answer: then no node can be named.
    """
    good = [one.node for one in found if one.verdict == GOOD]
    if not good:
        return list(found)
    deadline = time.monotonic() + question.limit_s
    heard = _step(_srun_ranks(good, question), question, deadline)
    return [of_ranks(one, heard) if one.node in good else one for one in found]


def _ask(nodes: Sequence[str], question: Question, deadline: float) -> list[Verdict]:
    """Ask all nodes in one step until the deadline.

    A node that Slurm does not reach ends the step for all; those after it in Slurm's tree do not
    even begin. So those without an answer are asked again, each in a step of its own.
    """
    before = _steps(question)
    heard = _step([*_srun(nodes, question), *_TASK], question, deadline)
    new = [step for step, changed in _steps(question).items() if before.get(step) != changed]
    traces = _traces(question, new, heard.began)
    usual = median(one.start_took for one in traces.values()) if len(traces) > 2 else math.inf
    found = [judged(node, heard, traces.get(node), len(nodes) == 1, usual) for node in nodes]
    if heard.slow:
        begun = _begun(question, new)
        found = [_with_begin(one) if one.node in begun else one for one in found]
    silent = [one for one in found if one.verdict == SILENT]
    if heard.slow or len(nodes) == 1 or not silent:
        return found
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = pool.map(lambda one: _ask([one.node], question, deadline)[0], silent)
        again = {one.node: one for one in asked}
    return [_newer(one, again.get(one.node, one)) for one in found]


def _newer(before: Verdict, again: Verdict) -> Verdict:
    """Return the second verdict, unless it only is that there was no time left."""
    has_reason = again.verdict == SILENT and not before.reason.startswith("no answer")
    return before if has_reason else again


def _step(srun: list[str], question: Question, deadline: float) -> Heard:
    """Run a step, and return what it says."""
    pieces: list[bytes] = []
    began, begin, answered = time.time(), time.monotonic(), [0.0]

    def hear(piece: bytes) -> None:
        pieces.append(piece)
        if ANSWER.encode() in piece:
            answered.append(time.monotonic() - begin)

    failed = slurm.run_step(srun, {**question.env, AGAIN: "1"}, deadline - begin, hear)
    slow = f"no answer within {question.limit_s:g} s" if failed is None else ""
    if slow and answered[-1]:
        slow += f"; other nodes took up to {answered[-1]:.1f} s"
    said = b"".join(pieces).decode(errors="replace")
    return Heard(said, failed or "", slow, began, answered[-1] > question.limit_s / 2)


def _srun(nodes: Sequence[str], question: Question, ranks: int = 1, mpi: str = "none") -> list[str]:
    """Return the words before those of the task, for `ranks` tasks on each node."""
    argv = ["srun", "--job-name=ce-vet", f"--nodes={len(nodes)}", f"--ntasks={ranks * len(nodes)}"]
    argv += [f"--ntasks-per-node={ranks}", f"--nodelist={','.join(nodes)}", "--overlap", "--mem=0"]
    argv += ["--cpu-bind=none", f"--mpi={mpi}", "--kill-on-bad-exit=0", "--wait=0"]
    # Slurm ends what hangs after this process has gone, too
    argv += [f"--time={math.ceil(question.limit_s / 60) + 1}"]
    return [*argv, *question.component, f"--environment={question.environment}"]


def _srun_ranks(nodes: Sequence[str], question: Question) -> list[str]:
    """Return the words of a step whose ranks ask MPI; a node may have one processor only."""
    argv = [*_srun(nodes, question, RANKS, question.mpi), "--overcommit"]
    return [*argv, f"--container-mounts={question.ask}:{_ASK}:ro", _ASK, "mpi"]


def _steps(question: Question) -> dict[str, float]:
    """Return the steps of this job that have a trace, each with the time of its last change."""
    if not question.traces:
        return {}
    known = step_traces.steps(question.traces, question.uid)
    own = [step for step in known if step.startswith(f"{question.env['SLURM_JOB_ID']}.")]
    with contextlib.suppress(OSError):
        return {step: os.stat(f"{question.traces}/{step}").st_mtime for step in own}
    return {}


def _begun(question: Question, steps: Sequence[str]) -> set[str]:
    """Return the nodes on which the start of a container has begun and has not ended."""
    with contextlib.suppress(OSError):
        files = [one for step in steps for one in os.scandir(f"{question.traces}/{step}")]
        return {one.name.removesuffix(".json") for one in files if not one.stat().st_size}
    return set()


def _with_begin(one: Verdict) -> Verdict:
    if one.verdict not in {SILENT, UNKNOWN}:
        return one
    return one._replace(reason=f"{one.reason}; its container had begun to start")


def _traces(question: Question, steps: Sequence[str], began: float) -> dict[str, step_traces.Trace]:
    """Return the trace of each node, of a step that was planned after it `began`.

    A requeued job has the same steps again.
    """
    with contextlib.suppress(UserError):
        found = [one for step in steps for one in step_traces.read(question.traces, step)]
        return {one.node: one for one in found if one.planned >= began}
    return {}


# ---- the file of bad nodes, which Slurm reads, too (sbatch --exclude) ---------------------------


def remembered(path: str, now: float) -> dict[str, str]:
    """Return the nodes that the file excludes, each with the time and the reason.

    Lines older than a week are removed from it, those of silent nodes after a day. `#` begins a
    comment. A node without one stays. Raise UserError.
    """
    found, kept = {}, []
    try:
        with open(path, "a+", encoding="utf-8") as file:
            file.seek(0)
            text = file.read()
        for number, line in enumerate(text.splitlines(), 1):
            node, _mark, about = (part.strip() for part in line.partition("#"))
            if node and not _NODE.fullmatch(node):
                raise UserError(f"'{node[:40]}' is no node", _FORM, where=f"{path}:{number}")
            if not node or not about or now < _until(about, f"{path}:{number}"):
                kept.append(line)
                found.update({node: about} if node else {})
        if _text(kept) != text.encode("utf-8", "replace"):  # also without an end of the last line
            replace(os.path.realpath(path), _text(kept))
    except (OSError, ValueError) as error:
        raise UserError(reason(error), "name a text file that you may write", where=path) from None
    return found


def _until(about: str, where: str) -> float:
    when, _space, why = about.partition(" ")
    lasts = _SILENT_S if why.startswith(f"{SILENT}: ") else _REMEMBERED_S
    try:
        return datetime.fromisoformat(when).timestamp() + lasts
    except (ValueError, OverflowError):
        raise UserError(f"'{about[:40]}' begins with no time", _FORM, where=where) from None


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def remember(path: str, bad: Sequence[Verdict], now: float) -> None:
    """Add nodes to the file, in one write: other jobs may do so, too. Raise UserError."""
    when = datetime.fromtimestamp(now).astimezone().isoformat(timespec="seconds")
    marks = {SILENT: f"{SILENT}: "}
    whys = (f"{marks.get(one.verdict, '')}{' '.join(one.reason.split())}" for one in bad)
    lines = (f"{one.node} # {when} {why}" for one, why in zip(bad, whys, strict=True))
    try:
        with open(path, "ab") as file:
            file.write(_text(lines))
    except OSError as error:
        raise UserError(reason(error), "name a text file that you may write", where=path) from None
