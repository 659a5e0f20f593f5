"""Find this node's name from the variables that Slurm gives a step before its tasks exist.

SLURMD_NODENAME is set later, for each task; the list of nodes and this node's index in it are
known from the start. A SLURMD_NODENAME that is already set may be that of the batch script in
which srun ran.
"""

from __future__ import annotations

import os

from container_engine.base.variables import OF_TASKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def complete(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the SLURMD_NODENAME that tasks will have, if it is known."""
    name = node_name(environment)
    return {**environment, "SLURMD_NODENAME": name} if name else dict(environment)


def of_step(environment: Mapping[str, str]) -> dict[str, str]:
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
