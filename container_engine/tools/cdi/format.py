"""Write CDI specifications of device nodes that a node has, below / or a substitute for it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from container_engine.base.errors import UserError

if TYPE_CHECKING:
    from container_engine.oci.cdi import ContainerEdits, Device, DeviceNode, Spec

    Nodes = Sequence[DeviceNode]


class Made:
    """A specification, and lines for the administrator about what is not in it.

    `version` is that of the driver, if its files are in the specification.
    """

    def __init__(self, spec: Spec, version: str = "", warnings: Sequence[str] = ()) -> None:
        self.spec, self.version, self.warnings = spec, version, warnings


def specification(
    version: str,
    kind: str,
    named: Mapping[str, Nodes],
    shared: ContainerEdits,
    aliases: Mapping[str, Nodes] = MappingProxyType({}),
) -> Spec:
    """Return a specification; `aliases` are further names for devices of `named`."""
    devices: list[Device] = [
        {"name": name, "containerEdits": {"deviceNodes": list(nodes)}}
        for name, nodes in (*named.items(), *aliases.items())
    ]
    everything = {node["path"]: node for nodes in named.values() for node in nodes}
    every: ContainerEdits = {"deviceNodes": list(everything.values())}
    devices.append({"name": "all", "containerEdits": every})
    spec: Spec = {"cdiVersion": version, "kind": kind, "devices": devices}
    if shared:
        spec["containerEdits"] = shared
    return spec


def node(root: str, path: str) -> DeviceNode:
    """Return the entry of a device node. Raise UserError if it is none."""
    status = os.stat(f"{root}{path}")
    if not stat.S_ISCHR(status.st_mode):
        raise UserError(f"cdi: {path} is not a character device", see="cdi-file")
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    return {"path": path, "type": "c", "major": major, "minor": minor}


def numbered(directory: str, pattern: str) -> list[int]:
    """Return the numbers in matching names of a directory, sorted; [] if it cannot be read."""
    names = listed(directory)
    return sorted(int(found[1]) for name in names if (found := re.fullmatch(pattern, name)))


def listed(directory: str) -> list[str]:
    """Return the sorted names in a directory; [] if it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def text(path: str) -> str:
    """Return a file's content, "" if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def fields(path: str) -> dict[str, str]:
    """Return the `KEY: VALUE` lines of a file of the kernel's."""
    pairs = (line.partition(":") for line in text(path).splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
