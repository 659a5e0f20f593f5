"""Read values from a node's slurm.conf for hooks, without asking slurmctld."""

from __future__ import annotations

import os

from container_engine.node import node_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_USUAL = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
_MAX_INCLUDES = 32


def find(node: Mapping[str, str], more: Sequence[str] = ()) -> str:
    """Return the slurm.conf of the step's environment, else a usual one, else of `more`; or ""."""
    for path in (node.get("SLURM_CONF", ""), *_USUAL, *more):
        if path and os.path.isfile(path):
            return path
    return ""


def value(path: str, key: str) -> str:
    """Return the last value of `key` in the file and its included files, or "" if it is not set."""
    found = ""
    for line in _lines(path, [path]):
        name, equals, text = line.partition("=")
        if equals and name.strip().lower() == key.lower():
            # some lines hold several settings; the values of these keys have no spaces
            words = text.strip().strip('"').split()
            found = words[0].strip('"') if words else ""
    return found


def _lines(path: str, seen: list[str]) -> list[str]:
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape")
    except OSError:
        return []
    lines = []
    for raw in text.split("\n"):
        line = raw.partition("#")[0].strip()
        word, _space, rest = line.partition(" ")
        included = os.path.join(os.path.dirname(path), rest.strip())
        if word.lower() != "include":
            lines.append(line)
        elif included not in seen and len(seen) < _MAX_INCLUDES:
            seen.append(included)
            lines += _lines(included, seen)
    return lines


def on_node(text: str, node: Mapping[str, str]) -> str:
    """Fill in this node's names in a path of slurm.conf."""
    host = os.uname().nodename.partition(".")[0]
    name = node_name.complete(node).get("SLURMD_NODENAME", host)
    return text.replace("%n", name).replace("%h", host)
