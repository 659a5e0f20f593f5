"""Ask each node of an allocation, by a step in the container, and judge it by answer and trace."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, NamedTuple

from container_engine.base import files, slurm
from container_engine.base.errors import CeError, UserError, with_output
from container_engine.base.process import reason
from container_engine.submit.prepare import AGAIN
from container_engine.tools import step_traces

GOOD, FAILED, SILENT, EXCLUDED = "good", "failed", "silent", "excluded"
_ANSWER = "SLURMD_NODENAME"
# the container's first program, which is in any image
_TASK = ("/dev/.ce-init", "--print", _ANSWER)
# where a task finds the program that asks MPI; two on each node, which share memory
_ASK, _RANKS = "/dev/.ce-ask", 2
# steps of one node each, for those that did not answer the step of all
_AT_ONCE = 16


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
    said, complaint, slow = _step(_srun_ranks(good, question), question, deadline)
    return [_of_ranks(one, said, slow or complaint) if one.node in good else one for one in found]


def _ask(nodes: Sequence[str], question: Question, deadline: float) -> list[Verdict]:
    """Ask all nodes in one step until the deadline.

    A node that Slurm does not reach ends the step for all; those after it in Slurm's tree do not
    even begin. So those without an answer are asked again, each in a step of its own.
    """
    before = _steps(question)
    said, complaint, slow = _step([*_srun(nodes, question), *_TASK], question, deadline)
    traces = _traces(question, before)
    found = [_judged(node, said, traces.get(node), slow or complaint) for node in nodes]
    silent = [one.node for one in found if one.verdict == SILENT]
    if slow or len(nodes) == 1 or not silent:
        return found
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for answer in pool.map(lambda node: _ask([node], question, deadline), silent):
            found = [answer[0] if one.node == answer[0].node else one for one in found]
    return found


def _step(srun: list[str], question: Question, deadline: float) -> tuple[str, str, str]:
    """Run a step; return its output, why srun failed, and that it had no time left, "" if not."""
    pieces: list[bytes] = []
    env = {**question.env, AGAIN: "1"}
    failed = slurm.run_step(srun, env, deadline - time.monotonic(), pieces)
    slow = f"no answer within {question.limit_s:g} s" if failed is None else ""
    return b"".join(pieces).decode(errors="replace"), failed or "", slow


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


def _steps(question: Question) -> set[str]:
    """Return the steps of this job that have a trace."""
    if not question.traces:
        return set()
    known = step_traces.steps(question.traces, question.uid)
    return {step for step in known if step.startswith(f"{question.env['SLURM_JOB_ID']}.")}


def _traces(question: Question, before: set[str]) -> dict[str, step_traces.Trace]:
    """Return the newest trace of each node, of steps that were not there `before`."""
    new = sorted(_steps(question) - before, key=lambda step: int(step.partition(".")[2]))
    with contextlib.suppress(UserError):
        return {one.node: one for step in new for one in step_traces.read(question.traces, step)}
    return {}


def _judged(node: str, said: str, trace: step_traces.Trace | None, complaint: str) -> Verdict:
    """Return the verdict by what the node and srun have printed, and by its trace if there is one.

    Of equal messages of several nodes only one is printed, where all of them have traces.
    """
    name = re.escape(node)
    errors = re.findall(rf"(?m)^ce: error: {name}: (.*)$", said)
    warnings = re.findall(rf"(?m)^ce: warning: {name}: (.*)$", said)
    checks: tuple[Mapping[str, Any], ...] = ()
    if trace is not None:
        errors = [trace.facts["error"]] if trace.facts["error"] else errors
        warnings = trace.facts.get("warnings", warnings)
        recorded = trace.facts.get("checks", ())
        checks = tuple(map(_check, recorded))
        if trace.facts["error"]:
            # what else failed is not said beside the error
            warnings = [line for line in map(_warning, recorded) if line]
    if re.search(rf"(?m)^{_ANSWER}={name}$", said):
        return Verdict(node, GOOD, "", tuple(warnings), checks)
    if errors:
        return Verdict(node, FAILED, errors[0], tuple(warnings), checks)
    about = re.findall(rf"(?m)^srun: error: (.*(?<![\w.-]){name}(?![\w.-]).*)$", said)
    why = complaint if complaint.startswith("no answer") else (*about, complaint, "no answer")[0]
    return Verdict(node, SILENT, why or "no answer", tuple(warnings), checks)


def _of_ranks(before: Verdict, said: str, complaint: str) -> Verdict:
    """Return the verdict on a good node by what its ranks have printed."""
    lines = re.findall(rf"(?m)^{re.escape(before.node)}: (.*)$", said)
    wrong = [line for line in lines if not re.fullmatch(r"rank \d+ of \d+", line)]
    if not wrong and len(lines) == _RANKS:
        return before
    node = _judged(before.node, said, None, complaint)
    of_mpi = re.search(r"(?m)^(?!(?:ce|srun|[\w.-]+): )(.*[a-z].*)$", said)
    reason = with_output(f"MPI has not started: {node.reason}", of_mpi[1] if of_mpi else "")
    verdict = (FAILED, wrong[0]) if wrong else (node.verdict, reason)
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


_REMEMBERED_S = 7 * 86400
_NODE = re.compile(r"[\w.-]+")
_FORM = "each line is NODE # TIME REASON: correct it or remove it"


def remembered(path: str, now: float) -> dict[str, str]:
    """Return the nodes that the file excludes, each with the time and the reason.

    Lines older than a week are removed from it. Slurm reads the file, too (sbatch --exclude): `#`
    begins a comment. A node without one stays. Raise UserError.
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
            if not node or not about or now - _time(about, f"{path}:{number}") < _REMEMBERED_S:
                kept.append(line)
                found.update({node: about} if node else {})
        if _text(kept) != text.encode("utf-8", "replace"):  # also without an end of the last line
            files.replace(os.path.realpath(path), _text(kept))
    except (OSError, ValueError) as error:
        raise UserError(reason(error), "name a text file that you may write", where=path) from None
    return found


def _time(about: str, where: str) -> float:
    try:
        return datetime.fromisoformat(about.partition(" ")[0]).timestamp()
    except (ValueError, OverflowError):
        raise UserError(f"'{about[:40]}' begins with no time", _FORM, where=where) from None


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def remember(path: str, bad: Sequence[Verdict], now: float) -> None:
    """Add nodes to the file, in one write: other jobs may do so, too. Raise UserError."""
    when = datetime.fromtimestamp(now).astimezone().isoformat(timespec="seconds")
    lines = (f"{one.node} # {when} {' '.join(one.reason.split())}" for one in bad)
    try:
        with open(path, "ab") as file:
            file.write(_text(lines))
    except OSError as error:
        raise UserError(reason(error), "name a text file that you may write", where=path) from None
