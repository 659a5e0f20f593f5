"""The same questions on all nodes, asked through srun, and their answers folded together."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from container_engine.doctor.finding import Finding, State, failed, warning
from container_engine.errors import UserError
from container_engine.process import CommandError, on_the_host, output

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LIMIT_S = 600
_ROOM_S = 30  # for which a step waits for a place on its nodes
_NO_ROOM = 75  # srun's exit code then
# what an upgrade changes; nodes of one cluster usually have the same
_ALIKE = ("kernel", "podman", "crun", "conmon", "installation", "slurm")
_CLOCK_S = 30  # apart; munge refuses messages that are minutes old
_USABLE = ("idle", "mix", "alloc", "comp")


class Group(NamedTuple):
    """Nodes that one step asks, in a job in `partition`; that is empty within an allocation."""

    names: tuple[str, ...]
    partition: str = ""


class Answer(NamedTuple):
    """What one node found, its clock among it."""

    node: str
    findings: tuple[Finding, ...]


class Folded(NamedTuple):
    """One finding and all nodes that have it."""

    finding: Finding
    nodes: tuple[str, ...]


def groups(env: Mapping[str, str]) -> tuple[list[Group], list[Folded]]:
    """The nodes to ask, by partition and state: the allocation's, else all that are up.

    And findings on those that are not up.
    """
    if env.get("SLURM_JOB_NODELIST"):
        return [Group(tuple(hosts(env["SLURM_JOB_NODELIST"], env)))], []
    found: dict[str, tuple[str, str]] = {}
    for line in _lines(["sinfo", "--noheader", "--Node", "--format=%N %t %P"], env):
        name, state, partition = line.split()[:3]
        if name not in found or partition.endswith("*"):  # the one that jobs go to by default
            found[name] = (partition.rstrip("*"), state)
    members: dict[tuple[str, str], list[str]] = {}
    for name, place in found.items():
        members.setdefault(place, []).append(name)
    usable = [
        Group(tuple(names), partition)
        for (partition, state), names in members.items()
        if state.startswith(_USABLE)
    ]
    if not usable:
        raise UserError("no node is up", "sinfo says what they are")
    remedy = "sinfo -R says why, scontrol show node NODE what else is known"
    return usable, [
        Folded(warning("nodes", f"{state}: not asked", remedy), tuple(names))
        for (_partition, state), names in members.items()
        if not state.startswith(_USABLE)
    ]


def hosts(text: str, env: Mapping[str, str]) -> list[str]:
    return _lines(["scontrol", "show", "hostnames", text], env)


def hostlist(names: Sequence[str], env: Mapping[str, str]) -> str:
    """n1,n2,n3 as n[1-3]."""
    return _lines(["scontrol", "show", "hostlist", ",".join(names)], env)[0]


def _lines(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    return output(argv, env, 60).decode(errors="replace").split("\n")[:-1]


def ask(
    asked: Sequence[Group], ce: str, options: Sequence[str], env: Mapping[str, str]
) -> tuple[list[Answer], list[Folded]]:
    """Runs `ce doctor --node --lines` once on each node; no group waits for another.

    A node without an answer is a finding. Beside the answers: what is to be said of groups that had
    no room. `options` are srun's, behind ours.
    """
    with ThreadPoolExecutor() as pool:
        heard = list(pool.map(lambda group: _ask(group, ce, options, env), asked))
    answers, busy = [], []
    for group, found in zip(asked, heard, strict=True):
        if found is None:
            remedy = "ask later, or wait longer: ce doctor --all-nodes -- --immediate=600"
            busy.append(Folded(warning("nodes", "busy: no room for a step", remedy), group.names))
        else:
            answers += found
    return answers, busy


def _ask(
    group: Group, ce: str, options: Sequence[str], env: Mapping[str, str]
) -> list[Answer] | None:
    """None where the nodes had no room."""
    names = group.names
    argv = ["srun", "--quiet", f"--nodes={len(names)}", "--ntasks-per-node=1", "--overlap"]
    argv += [f"--nodelist={','.join(names)}", "--kill-on-bad-exit=0"]
    # a step shall need nothing of its job's memory, a job of our own little beside others
    own = (f"--partition={group.partition}", f"--immediate={_ROOM_S}", "--mem=500M")
    argv += own if group.partition else ("--mem=0",)
    own_env = {**on_the_host(env), "SLURM_EXIT_IMMEDIATE": str(_NO_ROOM)}
    asked = time.time()
    try:
        said = output([*argv, *options, ce, "doctor", "--node", "--lines"], own_env, _LIMIT_S)
        complaint = "no answer"
    except CommandError as error:
        if error.status == _NO_ROOM:
            return None
        # exit code 1 is an answer, too: something was found
        said, complaint = error.stdout, f"no answer: {error}"
    answers = understood(said.decode(errors="replace").splitlines(), asked, time.time())
    silent = sorted(set(names) - {answer.node for answer in answers})
    unheard = failed("nodes", complaint, "look at slurmd's log there")
    return [*answers, *(Answer(name, (unheard,)) for name in silent)]


def to_lines(findings: Iterable[Finding]) -> str:
    """What a node answers: a line for each finding, short enough for Slurm to keep it whole."""
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    return "\n".join(json.dumps([node, time.time(), *finding]) for finding in findings)


def understood(lines: Iterable[str], asked: float, heard: float) -> list[Answer]:
    """What nodes answered between `asked` and `heard`, in seconds since 1970 by our clock."""
    found: dict[str, list[Finding]] = {}
    for line in lines:
        if not line.startswith("["):
            continue  # what a login script or another plugin prints
        node, when, check, state, message, remedy = json.loads(line)
        if node not in found:
            found[node] = _clock(max(asked - when, when - heard))
        found[node].append(Finding(check, State(state), message, remedy))
    return [Answer(node, tuple(findings)) for node, findings in found.items()]


def _clock(apart: float) -> list[Finding]:
    """`apart` is at least that: all answers come when the slowest node has given its own."""
    if apart <= _CLOCK_S:
        return []
    text = f"at least {apart:.0f} s apart from this host's"
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


def differing(folded: Sequence[Folded]) -> list[Folded]:
    """What is fine on each node, but not the same on all of them."""
    fine = [entry for entry in folded if entry.finding.state is State.OK]
    kinds = Counter(entry.finding.check for entry in fine if entry.finding.check in _ALIKE)
    return [entry for entry in fine if kinds[entry.finding.check] > 1]
