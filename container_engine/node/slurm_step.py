"""Find what a step has on this node before its tasks exist: the node's name, and a port.

SLURMD_NODENAME is set later, for each task; the list of nodes and this node's index in it are
known from the start. A SLURMD_NODENAME that is already set may be that of the batch script in
which srun ran.
"""

from __future__ import annotations

import os

from container_engine.base.variables import OF_TASKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def complete(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the SLURMD_NODENAME that tasks will have, if it is known."""
    name = node_name(environment)
    return {**environment, "SLURMD_NODENAME": name} if name else dict(environment)


def before_tasks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what `complete` does, without variables that only tasks have (SLURM_PROCID)."""
    known = complete(environment)
    for name in OF_TASKS:
        known.pop(name, None)
    return known


def node_name(environment: Mapping[str, str]) -> str:
    """Return the value that SLURMD_NODENAME will have, or "" if it is unknown."""
    known = environment.get("SLURMD_NODENAME", "")
    place = environment.get("SLURM_NODEID", "")
    nodes = environment.get("SLURM_STEP_NODELIST", "")
    if not place.isdigit() or not nodes:
        return known
    return next((name for index, name in enumerate(expand(nodes)) if index == int(place)), known)


def in_path(text: str, environment: Mapping[str, str]) -> str:
    """Return a path of slurm.conf with this node's names for %n and %h."""
    host = os.uname().nodename.partition(".")[0]
    return text.replace("%n", node_name(environment) or host).replace("%h", host)


def expand(nodes: str) -> Iterator[str]:
    """Yield the names of a Slurm host list such as ``n[1-3,08],login1,r[1-2]c[0-1]``, in order."""
    for pattern in _split(nodes):
        yield from _expand_one(pattern)


def contract(names: Iterable[str]) -> str:
    """Return a host list of these names, whatever their order: ``n[1-3,7],login1``."""
    numbers: dict[tuple[str, bool], list[str]] = {}
    for name in names:
        stem = name.rstrip("0123456789")
        numbers.setdefault((stem, stem != name), []).append(name[len(stem) :])
    return ",".join(stem + _ranges(those) for (stem, _numbered), those in numbers.items())


def _ranges(numbers: Iterable[str]) -> str:
    runs: list[list[str]] = []
    for number in sorted(numbers, key=lambda number: (len(number), number)):
        if runs and _follows(runs[-1][-1], number):
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    text = ",".join(map("-".join, runs))
    return f"[{text}]" if "," in text or "-" in text else text


def _follows(number: str, after: str) -> bool:
    """Check if the second is one more, and `expand` would write it so."""
    return number != "" and str(int(number) + 1).zfill(len(number)) == after


def _split(nodes: str) -> Iterator[str]:
    """Yield the patterns between the commas outside brackets."""
    begin = depth = 0
    for index, character in enumerate(nodes):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            yield nodes[begin:index]
            begin = index + 1
    yield nodes[begin:]


def _expand_one(pattern: str) -> Iterator[str]:
    before, bracket, rest = pattern.partition("[")
    if not bracket:
        yield pattern
        return
    ranges, _bracket, after = rest.partition("]")
    for number in (n for part in ranges.split(",") for n in _numbers(part)):
        for tail in _expand_one(after):
            yield before + number + tail


def _numbers(part: str) -> Iterator[str]:
    first, dash, last = part.partition("-")
    if not dash:
        yield first
        return
    for number in range(int(first), int(last) + 1):
        yield str(number).zfill(len(first))


# Below Linux's range of ephemeral ports, so that a port is rarely in use. All have as many digits.
# They must match step_answers.h.
FIRST, COUNT = 20000, 10000
STEPS_APART = 16
_IDS = ("SLURM_JOB_ID", "SLURM_STEP_ID")


def port(node: Mapping[str, str]) -> str:
    """Return a port for the step, the same on all of its nodes; it differs for most other steps.

    ce-guard chooses the same (spank_plugin/guard/step_answers.h).
    """
    numbers = [node.get(name, "0") for name in _IDS]
    job, step = (int(number) if number.isdecimal() else 0 for number in numbers)
    return str(FIRST + (job * STEPS_APART + step) % COUNT)


def next_step(node: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the step after this one. Raise ValueError, KeyError without IDs."""
    job, step = (int(node[name]) for name in _IDS)
    return {**node, _IDS[0]: str(job), _IDS[1]: str(step + 1)}
