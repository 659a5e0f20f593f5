"""The same questions on all nodes, asked through srun, and their answers folded together."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from container_engine.doctor.finding import Finding, State, failed, warning
from container_engine.errors import UserError
from container_engine.process import CommandError, on_the_host, output

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LIMIT_S = 600
_CLOCK_S = 30  # apart; munge refuses messages that are minutes old
_USABLE = ("idle", "mix", "alloc", "comp")


class Answer(NamedTuple):
    """What one node found, and the difference of its clock to ours in seconds."""

    node: str
    findings: tuple[Finding, ...]


class Folded(NamedTuple):
    """One finding and all nodes that have it."""

    finding: Finding
    nodes: tuple[str, ...]


def nodes(env: Mapping[str, str]) -> tuple[list[str], list[Finding]]:
    """The nodes to ask: the allocation's, else all that are up; findings on those that are not."""
    if env.get("SLURM_JOB_NODELIST"):
        return hosts(env["SLURM_JOB_NODELIST"], env), []
    argv = ["sinfo", "--noheader", "--Node", "--format=%N %t"]
    states = dict(line.split()[:2] for line in _lines(argv, env))
    usable = [name for name, state in states.items() if state.startswith(_USABLE)]
    absent = [
        warning("nodes", f"{name} is {state} and was not asked", f"scontrol show node {name}")
        for name, state in states.items()
        if name not in usable
    ]
    if not usable:
        raise UserError("no node is up", "sinfo says what they are")
    return usable, absent


def hosts(text: str, env: Mapping[str, str]) -> list[str]:
    return _lines(["scontrol", "show", "hostnames", text], env)


def hostlist(names: Sequence[str], env: Mapping[str, str]) -> str:
    """n1,n2,n3 as n[1-3]."""
    return _lines(["scontrol", "show", "hostlist", ",".join(names)], env)[0]


def _lines(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    return output(argv, env, 60).decode(errors="replace").split("\n")[:-1]


def ask(
    names: Sequence[str], ce: str, options: Sequence[str], env: Mapping[str, str]
) -> list[Answer]:
    """Runs `ce doctor --node --json` once on each node. A node without an answer is a finding."""
    argv = ["srun", "--quiet", f"--nodes={len(names)}", "--ntasks-per-node=1", "--mem=0"]
    argv += [f"--nodelist={','.join(names)}", "--overlap", "--kill-on-bad-exit=0", *options]
    try:
        said = output([*argv, ce, "doctor", "--node", "--lines"], on_the_host(env), _LIMIT_S)
        complaint = "no answer"
    except CommandError as error:
        # exit code 1 is an answer, too: something was found
        said, complaint = error.stdout, f"no answer: {error}"
    answers = _answers(said.decode(errors="replace").splitlines())
    silent = sorted(set(names) - {answer.node for answer in answers})
    unheard = failed("nodes", complaint, "look at slurmd's log there")
    return [*answers, *(Answer(name, (unheard,)) for name in silent)]


def to_lines(findings: Iterable[Finding]) -> str:
    """What a node answers: a line for each finding, short enough for Slurm to keep it whole."""
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    return "\n".join(json.dumps([node, time.time(), *finding]) for finding in findings)


def _answers(lines: Iterable[str]) -> list[Answer]:
    found: dict[str, list[Finding]] = {}
    for line in lines:
        if not line.startswith("["):
            continue  # what a login script or another plugin prints
        node, when, check, state, message, remedy = json.loads(line)
        if node not in found:
            found[node] = _clock(time.time() - when)
        found[node].append(Finding(check, State(state), message, remedy))
    return [Answer(node, tuple(findings)) for node, findings in found.items()]


def _clock(apart: float) -> list[Finding]:
    """`apart` contains the time that the answers were on their way."""
    if abs(apart) <= _CLOCK_S:
        return []
    text = f"{apart:.0f} s apart from this host's"
    return [failed("clock", text, "start chrony or ntpd: munge refuses messages of old")]


def fold(answers: Iterable[Answer]) -> list[Folded]:
    """Equal findings become one. The worst come last, where people look."""
    where: dict[Finding, list[str]] = {}
    for answer in answers:
        for finding in answer.findings:
            where.setdefault(finding, []).append(answer.node)
    order = list(State)
    found = sorted(where, key=lambda finding: order.index(finding.state))
    return [Folded(finding, tuple(sorted(where[finding]))) for finding in found]
