"""Ask each node of an allocation, by a step in the container, and judge it by answer and trace."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any, NamedTuple

from container_engine.base import slurm
from container_engine.base.errors import CeError, UserError, with_output
from container_engine.node import slurm_step
from container_engine.submit.prepare import AGAIN
from container_engine.tools import step_traces

GOOD, FAILED, SILENT, UNKNOWN = "good", "failed", "silent", "unknown"
EXCLUDED = "excluded"
_ANSWER = "SLURMD_NODENAME"
# the container's first program, which is in any image
_TASK = ("/dev/.ce-init", "--print", _ANSWER)
# where a task finds the program that asks MPI; two on each node, which share memory
_ASK, _RANKS = "/dev/.ce-ask", 2
# steps of one node each, for those that did not answer the step of all
_AT_ONCE = 16
# a start this many times as long as the median, and this many seconds longer, gets a warning
_SLOWER, _SLOWER_S = 3, 1.0
_CLOCKS_APART_S = 5.0
_MEMORY = "out of memory"


class Verdict(NamedTuple):
    """The verdict on a node; `reason` says why it is not good, `checks` are those of its trace."""

    node: str
    verdict: str
    reason: str = ""
    warnings: tuple[str, ...] = ()
    checks: tuple[Mapping[str, Any], ...] = ()

    @property
    def failed_pairs(self) -> set[str]:
        """The nodes with which a check failed."""
        return {one["peer"] for one in self.checks if one["verdict"] == "failed" and one["peer"]}


class Question(NamedTuple):
    """What each node is asked. `traces` is the directory of `uid`'s traces, "" for none.

    `mpi` is the value of srun's --mpi by which ranks must find one another, "" for no MPI; `ask` is
    the program that they run then.
    """

    environment: str
    limit_s: float
    traces: str
    uid: int
    env: Mapping[str, str]
    mpi: str = ""
    ask: str = ""


class Heard(NamedTuple):
    """What a step has said: its output, why srun failed, and that it had no time left, "" if not.

    `began` is when it began, in seconds since 1970. `is_limit_short` is whether a node that did
    answer took more than half of the limit.
    """

    said: str
    complaint: str
    slow: str
    began: float
    is_limit_short: bool


def longest_checks(plan: str) -> float:
    """Return for how long checks may run: those on the node first, then those in the container."""
    document = json.loads(plan or "{}")
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
        return slurm.answer(argv, question.env).strip() in {"RUNNING", "SUSPENDED"}
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
    return [_of_ranks(one, heard) if one.node in good else one for one in found]


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
    found = [_judged(node, heard, traces.get(node), len(nodes) == 1, usual) for node in nodes]
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
        if _ANSWER.encode() in piece:
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
    return [*argv, f"--environment={question.environment}"]


def _srun_ranks(nodes: Sequence[str], question: Question) -> list[str]:
    """Return the words of a step whose ranks ask MPI; a node may have one processor only."""
    argv = [*_srun(nodes, question, _RANKS, question.mpi), "--overcommit"]
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


def _judged(
    node: str, heard: Heard, trace: step_traces.Trace | None, is_alone: bool, usual: float
) -> Verdict:
    """Return the verdict by what the node and srun have printed, and by its trace if there is one.

    Of equal messages of several nodes only one is printed, where all of them have traces. What a
    step of one node prints is about it, also without its name.
    """
    name = re.escape(node)
    who = f"(?:{name}: )?" if is_alone else f"{name}: "
    errors = re.findall(rf"(?m)^ce: error: {who}(.*)$", heard.said)
    warnings = re.findall(rf"(?m)^ce: warning: {who}(.*)$", heard.said)
    checks: tuple[Mapping[str, Any], ...] = ()
    if trace is not None:
        errors = [trace.facts["error"]] if trace.facts["error"] else errors
        warnings = trace.facts.get("warnings", warnings)
        recorded = trace.facts.get("checks", ())
        checks = tuple(map(_check, recorded))
        if trace.facts["error"]:
            # what else failed is not said beside the error
            warnings = [line for line in map(_warning, recorded) if line]
        warnings = [*warnings, *_oddities(trace, heard, usual)]
    ended, about = _about(node, heard.said, is_alone)
    is_killed = any(one.endswith("Out Of Memory") for one in ended)
    if re.search(rf"(?m)^{_ANSWER}={name}$", heard.said):
        warnings = [*warnings, _MEMORY] if is_killed else warnings
        return Verdict(node, GOOD, "", tuple(warnings), checks)
    if is_killed:
        errors = [": ".join((_MEMORY, *errors[:1]))]
    # what a task of many has ended with says less than what the node says alone, asked again
    if errors or (ended and (is_alone or heard.slow)):
        return Verdict(node, FAILED, (*errors, *ended)[0], tuple(warnings), checks)
    why = (*ended, heard.slow, *about, heard.complaint, "no answer")
    verdict = UNKNOWN if heard.slow and heard.is_limit_short else SILENT
    return Verdict(node, verdict, next(filter(None, why)), tuple(warnings), checks)


def _about(node: str, said: str, is_alone: bool) -> tuple[list[str], list[str]]:
    """Return how the node's task has ended, by srun, and what else srun says about the node."""
    ended, about = [], []
    for line in re.findall(r"(?m)^srun: error: (.*)$", said):
        of_task = re.fullmatch(r"(?:([\w.,\[\]-]+): )?tasks? [\d,-]+(?: launch failed)?: .*", line)
        nodes = slurm_step.expand(of_task[1]) if of_task and of_task[1] else ()
        if of_task and (is_alone or node in nodes):
            ended.append(line)
        elif is_alone or re.search(rf"(?<![\w.-]){re.escape(node)}(?![\w.-])", line):
            about.append(line)
    return ended, about


def _oddities(trace: step_traces.Trace, heard: Heard, usual: float) -> Iterator[str]:
    """Yield what is unlike the other nodes, or this host, by the trace of a node."""
    if trace.start_took > max(_SLOWER * usual, usual + _SLOWER_S):
        yield f"its container took {trace.start_took:.1f} s to start, the median {usual:.1f} s"
    first = next((phase.begin for phase in trace.on_node), heard.began)
    ahead, behind = trace.seen - time.time(), heard.began - first
    if max(ahead, behind) > _CLOCKS_APART_S:
        apart = f"{ahead:.0f} s ahead of" if ahead > behind else f"{behind:.0f} s behind"
        yield f"its clock is at least {apart} that of {os.uname().nodename}"


def _of_ranks(before: Verdict, heard: Heard) -> Verdict:
    """Return the verdict on a good node by what its ranks have printed.

    Where ranks of several nodes have ended, one of them may have ended the others.
    """
    said = heard.said
    lines = re.findall(rf"(?m)^{re.escape(before.node)}: (.*)$", said)
    wrong = [line for line in lines if not re.fullmatch(r"rank \d+ of \d+", line)]
    if not wrong and len(lines) == _RANKS:
        return before
    node = _judged(before.node, heard, None, is_alone=False, usual=math.inf)
    of_mpi = re.search(r"(?m)^(?!(?:ce|srun|[\w.-]+): )(.*[a-z].*)$", said)
    reason = with_output(f"MPI has not started: {node.reason}", of_mpi[1] if of_mpi else "")
    verdict = (FAILED, wrong[0]) if wrong else (SILENT, reason)
    # of equal warnings, only one node's is printed
    new = re.findall(r"(?m)^ce: warning: \S+: (.*)$", said)
    warnings = (*before.warnings, *(line for line in new if line not in before.warnings))
    return before._replace(verdict=verdict[0], reason=verdict[1], warnings=warnings)


def _warning(recorded: Mapping[str, Any]) -> str:
    """Return what a check that failed, but refused no start, says; else ""."""
    if recorded["verdict"] != "failed" or recorded.get("severity") != "warn":
        return ""
    peer = f" ({recorded['role']} of {recorded['peer']})" if recorded.get("peer") else ""
    return f"{recorded['of']}: check {recorded['name']}{peer}: {recorded['problem']}"


def _check(recorded: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "check": f"{recorded['of']}: {recorded['name']}",
        "peer": str(recorded.get("peer", "")),
        **{key: recorded[key] for key in ("verdict", "problem")},
        "took": (recorded["end"] - recorded["begin"]) / 1e9,
    }
