"""Runs the checks on all nodes through srun, and folds equal findings together."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from container_engine.base import slurm
from container_engine.base.errors import UserError
from container_engine.base.process import CommandError, output
from container_engine.tools.doctor.finding import Finding, State, failed, warning

_LIMIT_S = 600
_ROOM_S = 30  # the longest wait of a step for resources on its nodes
_NO_ROOM = 75  # srun's exit code if it waited in vain
# a new job asks for little memory, to fit beside others; a step in a job needs none of its memory
_NEW_JOB = (f"--immediate={_ROOM_S}", "--mem=500M")
# checks with a result that an upgrade changes and that usually is equal on all nodes of a cluster
_ALIKE = ("kernel", "podman", "crun", "conmon", "installation", "slurm", "plugstack.conf", "tasks")
# checks of the site's own files, which should be the same on all nodes, and the remedy if not
_WRITTEN = {
    "configuration": "srun -w NODE ce config show on two of them shows where they differ",
    "rules": "install the same /etc/container-engine: each node applies its own rules",
}
_CLOCK_S = 30  # the largest difference allowed; munge refuses messages that are minutes old
# "plnd" is idle until a job starts that the backfill scheduler has planned there
_USABLE = ("idle", "mix", "alloc", "comp", "plnd")
_RESERVED = ("maint", "resv")


class Group(NamedTuple):
    """The nodes of one step, and srun's options for it: by default it is in this allocation."""

    names: tuple[str, ...]
    options: tuple[str, ...] = ()


class Answer(NamedTuple):
    """The findings of one node, including one on its clock if that is wrong."""

    node: str
    findings: tuple[Finding, ...]


class Folded(NamedTuple):
    """One finding and all nodes that have it."""

    finding: Finding
    nodes: tuple[str, ...]


def groups(env: Mapping[str, str]) -> tuple[list[Group], list[Folded]]:
    """Return the nodes to check, by partition and state, and findings on those that are not up.

    Within an allocation its nodes are checked, otherwise all that are up. Raise UserError if none
    is, and CeError if Slurm does not answer.
    """
    if own := slurm.own_nodes(env):
        return [Group(tuple(nodes), options) for options, nodes in own.items()], []
    found: dict[str, tuple[str, str]] = {}
    argv = ["sinfo", "--noheader", "--Node", "--format=%N %t %P"]
    for line in slurm.answer(argv, env).splitlines():
        name, state, partition = line.split()[:3]
        if name not in found or partition.endswith("*"):  # "*" marks the default partition
            found[name] = (partition.rstrip("*"), state)
    members: dict[tuple[str, str], list[str]] = {}
    for name, place in found.items():
        members.setdefault(place, []).append(name)
    usable = [
        Group(tuple(names), (f"--partition={partition}", *_NEW_JOB))
        for (partition, state), names in members.items()
        if state.startswith(_USABLE)
    ]
    if not usable:
        raise _none_usable(Counter(state for _partition, state in found.values()))
    remedy = "sinfo -R says why, scontrol show node NODE what else is known"
    return usable, [
        Folded(warning("nodes", f"{state}: not asked", remedy), tuple(names))
        for (_partition, state), names in members.items()
        if not state.startswith(_USABLE)
    ]


def _none_usable(states: Mapping[str, int]) -> UserError:
    """Return the error for a cluster whose nodes have these states, each on so many nodes."""
    hint = "sinfo -R says why"
    if any(state.startswith(_RESERVED) for state in states):
        hint = (
            "scontrol show reservations names the reservation; in an allocation with"
            " --reservation=NAME its nodes are asked"
        )
    them = ", ".join(f"{number} {state}" for state, number in states.items())
    return UserError(f"no node takes jobs: {them or 'sinfo names none'}", hint)


def ask(
    asked: Sequence[Group], ce: str, options: Sequence[str], env: Mapping[str, str]
) -> tuple[list[Answer], list[Folded]]:
    """Run `ce doctor --node --lines` once on each node, all groups in parallel.

    Return the answers, and findings on groups whose nodes had no free resources. A node without
    an answer gets a finding. `options` are for srun, and come last on its command line.
    """
    with ThreadPoolExecutor() as pool:
        heard = list(pool.map(lambda group: _ask(group, ce, options, env), asked))
    answers, busy = [], []
    for group, found in zip(asked, heard, strict=True):
        if found is None:
            remedy = "try again later, or wait longer: ce doctor --all-nodes -- --immediate=600"
            busy.append(Folded(warning("nodes", "busy: no room for a step", remedy), group.names))
        else:
            answers += found
    return answers, busy


def _ask(
    group: Group, ce: str, options: Sequence[str], env: Mapping[str, str]
) -> list[Answer] | None:
    """Return the answers of a group, or None if its nodes had no free resources."""
    names = group.names
    argv = ["srun", "--quiet", f"--nodes={len(names)}", "--ntasks-per-node=1", "--overlap"]
    argv += [f"--nodelist={','.join(names)}", "--kill-on-bad-exit=0"]
    argv += ["--mem=0", *group.options]
    own_env = {**slurm.on_the_host(env), "SLURM_EXIT_IMMEDIATE": str(_NO_ROOM)}
    asked = time.time()
    try:
        said = output([*argv, *options, ce, "doctor", "--node", "--lines"], own_env, _LIMIT_S)
        complaint = "no answer"
    except CommandError as error:
        if error.status == _NO_ROOM:
            return None
        # exit code 1 is also an answer: the checks have found something
        said, complaint = error.stdout, f"no answer: {error}"
    answers = understood(said.decode(errors="replace").splitlines(), asked, time.time())
    silent = sorted(set(names) - {answer.node for answer in answers})
    unheard = failed("nodes", complaint, "see slurmd's log there")
    return [*answers, *(Answer(name, (unheard,)) for name in silent)]


def to_lines(findings: Iterable[Finding]) -> str:
    """Return a node's answer, a line of JSON per finding: srun does not split lines."""
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    return "\n".join(json.dumps([node, time.time(), *finding]) for finding in findings)


def understood(lines: Iterable[str], asked: float, heard: float) -> list[Answer]:
    """Parse nodes' answers, received between `asked` and `heard`.

    Both are in seconds since 1970 by the clock of this host.
    """
    found: dict[str, list[Finding]] = {}
    for line in lines:
        answer = _answer(line)
        if answer is None:
            continue  # output of a login script or another plugin
        node, when, finding = answer
        if node not in found:
            found[node] = _clock(max(asked - when, when - heard))
        found[node].append(finding)
    return [Answer(node, tuple(findings)) for node, findings in found.items()]


def _answer(line: str) -> tuple[str, float, Finding] | None:
    """Return the node, its time and a finding of a line from `to_lines`, or None for any other."""
    try:
        node, when, check, state, message, remedy = json.loads(line)
        finding = Finding(check, State(state), message, remedy)
    except (ValueError, TypeError, RecursionError):
        return None
    texts = (node, check, message) if remedy is None else (node, check, message, remedy)
    is_ours = isinstance(when, float | int) and all(isinstance(text, str) for text in texts)
    return (node, when, finding) if is_ours else None


def _clock(apart: float) -> list[Finding]:
    """Return a finding for a clock that is at least `apart` seconds off, if that is too much.

    It is a lower bound, because all answers arrive together with that of the slowest node.
    """
    if apart <= _CLOCK_S:
        return []
    text = f"differs from this host's by at least {apart:.0f} s"
    return [
        failed("clock", text, "start chrony or ntpd: munge rejects credentials that are too old")
    ]


def fold(answers: Iterable[Answer]) -> list[Folded]:
    """Merge equal findings into one each. The worst come last, where users look."""
    where: dict[Finding, list[str]] = {}
    for answer in answers:
        for finding in answer.findings:
            where.setdefault(finding, []).append(answer.node)
    order = list(State)
    found = sorted(where, key=lambda finding: order.index(finding.state))
    return [Folded(finding, tuple(sorted(where[finding]))) for finding in found]


def differing(folded: Sequence[Folded]) -> list[Folded]:
    """Return the findings of _ALIKE checks that are fine on each node, but differ between nodes."""
    fine = [entry for entry in folded if _is_fine(entry)]
    kinds = Counter(entry.finding.check for entry in fine if entry.finding.check in _ALIKE)
    return [entry for entry in fine if kinds[entry.finding.check] > 1]


def unlike(folded: Sequence[Folded], own_rules: Finding) -> list[Folded]:
    """Return warnings if configurations differ between nodes, or their rules from this host's."""
    found: list[Folded] = []
    for check, remedy in _WRITTEN.items():
        fine = [entry for entry in folded if entry.finding.check == check and _is_fine(entry)]
        for (_check, _state, message, _remedy), nodes in fine if len(fine) > 1 else ():
            text = f"differs between nodes: {message}"
            found.append(Folded(warning(check, text, remedy), nodes))
        if check == own_rules.check and len(fine) == 1 and fine[0].finding != own_rules:
            text = f"{fine[0].finding.message}; where you submit: {own_rules.message}"
            found.append(Folded(warning(check, text, remedy), fine[0].nodes))
    return found


def _is_fine(entry: Folded) -> bool:
    return entry.finding.state is State.OK
