"""The verdict on a node: what it and srun have printed in a step, and its trace."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from container_engine.base.errors import with_output
from container_engine.node import slurm_step
from container_engine.tools import step_traces

GOOD, FAILED, SILENT, UNKNOWN = "good", "failed", "silent", "unknown"
EXCLUDED = "excluded"
# the variable that a node prints to answer, and how many ranks ask MPI on it and share memory
ANSWER, RANKS = "SLURMD_NODENAME", 2
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


class Heard(NamedTuple):
    """The output of a step, why srun failed, and that it had no time left, "" if not.

    `began` is when it began, in seconds since 1970. `is_limit_short` is whether a node that did
    answer took more than half of the limit.
    """

    said: str
    complaint: str
    slow: str
    began: float
    is_limit_short: bool


def judged(
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
    if re.search(rf"(?m)^{ANSWER}={name}$", heard.said):
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
        of_task = re.fullmatch(
            r"(?:([\w.,\[\]-]+): )?(tasks? [\d,-]+(?: launch failed)?: .*)", line
        )
        nodes = slurm_step.expand(of_task[1]) if of_task and of_task[1] else ()
        if of_task and (is_alone or node in nodes):
            ended.append(of_task[2])
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


def of_ranks(before: Verdict, heard: Heard) -> Verdict:
    """Return the verdict on a good node by what its ranks have printed.

    Where ranks of several nodes have ended, one of them may have ended the others.
    """
    said = heard.said
    lines = re.findall(rf"(?m)^{re.escape(before.node)}: (.*)$", said)
    wrong = [line for line in lines if not re.fullmatch(r"rank \d+ of \d+", line)]
    if not wrong and len(lines) == RANKS:
        return before
    node = judged(before.node, heard, None, is_alone=False, usual=math.inf)
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
