"""Makes CDI specifications for devices of a node: HPE's network devices, AMD's GPUs."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any

from container_engine.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_AMD = "0x1002"


def cxi(root: str) -> dict[str, Any]:
    """Return the specification of `hpe.com/cxi`: each device by its number, and `all`.

    `root` is / or a substitute for it. Raises UserError if there is no such device.
    """
    nodes = _numbered(f"{root}/dev", r"cxi([0-9]+)")
    if not nodes:
        raise UserError(f"cdi: there is no {root.rstrip('/')}/dev/cxi* on this node")
    named = {number: [_node(root, f"/dev/cxi{number}")] for number in nodes}
    return _spec("0.5.0", "hpe.com/cxi", named, {})


def amd(root: str) -> dict[str, Any]:
    """Return the specification of `amd.com/gpu`: each GPU by its index on the node, and `all`.

    /dev/kfd comes with any of them. The groups of the device nodes are listed (additionalGids):
    a rootless container cannot grant them, but a launch can report which one the user lacks.
    Raises UserError if there is no AMD GPU.
    """
    renders = [
        number
        for number in _numbered(f"{root}/dev/dri", r"renderD([0-9]+)")
        if _line(f"{root}/sys/class/drm/renderD{number}/device/vendor") == _AMD
    ]
    if not renders or not os.path.exists(f"{root}/dev/kfd"):
        raise UserError("cdi: there is no AMD GPU on this node: /dev/kfd and /dev/dri/renderD*")
    named = {}
    for index, number in enumerate(renders):
        cards = _numbered(f"{root}/sys/class/drm/renderD{number}/device/drm", r"card([0-9]+)")
        paths = [f"/dev/dri/renderD{number}", *(f"/dev/dri/card{card}" for card in cards)]
        named[index] = [_node(root, path) for path in paths if os.path.exists(f"{root}{path}")]
    places = ["/dev/kfd", *(node["path"] for nodes in named.values() for node in nodes)]
    groups = sorted({os.stat(f"{root}{path}").st_gid for path in places} - {0})
    shared: dict[str, Any] = {"deviceNodes": [_node(root, "/dev/kfd")]}
    shared |= {"additionalGids": groups} if groups else {}
    return _spec("0.7.0", "amd.com/gpu", named, shared)


MAKERS: Mapping[str, Callable[[str], dict[str, Any]]] = {"amd": amd, "cxi": cxi}


def _spec(
    version: str, kind: str, named: Mapping[int, Sequence[Mapping[str, Any]]], shared: object
) -> dict[str, Any]:
    devices = [
        {"name": str(number), "containerEdits": {"deviceNodes": list(nodes)}}
        for number, nodes in named.items()
    ]
    everything = [node for nodes in named.values() for node in nodes]
    devices.append({"name": "all", "containerEdits": {"deviceNodes": everything}})
    spec: dict[str, Any] = {"cdiVersion": version, "kind": kind, "devices": devices}
    return spec | ({"containerEdits": shared} if shared else {})


def _node(root: str, path: str) -> dict[str, Any]:
    status = os.stat(f"{root}{path}")
    if not stat.S_ISCHR(status.st_mode):
        raise UserError(f"cdi: {path} is not a character device")
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    return {"path": path, "type": "c", "major": major, "minor": minor}


def _numbered(directory: str, pattern: str) -> list[int]:
    """Return the numbers in matching names of a directory, sorted; [] if it cannot be read."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return sorted(int(found[1]) for name in names if (found := re.fullmatch(pattern, name)))


def _line(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""
