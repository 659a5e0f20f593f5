"""Makes CDI specifications for devices of a node: HPE's network devices, GPUs of AMD and NVIDIA."""

from __future__ import annotations

import os
import re
import stat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from container_engine.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_AMD = "0x1002"
_NVIDIA_SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_NVIDIA_PROGRAMS = (
    *("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced"),
    *("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
)
_FOR_READING = ("ro", "nosuid", "nodev", "rbind", "rprivate")


def cxi(root: str) -> dict[str, Any]:
    """Return the specification of `hpe.com/cxi`: each device by its number, and `all`.

    `root` is / or a substitute for it. Raise UserError if there is no such device.
    """
    nodes = _numbered(f"{root}/dev", r"cxi([0-9]+)")
    if not nodes:
        raise UserError(f"cdi: there is no {root.rstrip('/')}/dev/cxi* on this node")
    named = {number: [_node(root, f"/dev/cxi{number}")] for number in nodes}
    return _spec("0.5.0", "hpe.com/cxi", named, {})


def amd(root: str) -> dict[str, Any]:
    """Return the specification of `amd.com/gpu`: each GPU by its index on the node, and `all`.

    Every GPU comes with /dev/kfd. The groups of the device nodes are listed (additionalGids):
    a rootless container cannot grant them, but a launch can report which one the user lacks.
    Raise UserError if there is no AMD GPU.
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


def nvidia(root: str) -> dict[str, Any]:
    """Return the specification of `nvidia.com/gpu`: each GPU by index and UUID, and `all`.

    Every GPU comes with the driver's files, at the paths that they have on the node. No OCI hook
    makes them known to the container's loader, which must search their directory by itself. Raise
    UserError if there is no NVIDIA GPU or no driver.
    """
    numbers = _numbered(f"{root}/dev", r"nvidia([0-9]+)")
    if not numbers:
        raise UserError("cdi: there is no NVIDIA GPU on this node: /dev/nvidia*")
    named = {index: [_node(root, f"/dev/nvidia{number}")] for index, number in enumerate(numbers)}
    aliases = {
        uuid: [_node(root, f"/dev/nvidia{number}")]
        for number, uuid in _nvidia_uuids(root)
        if number in numbers
    }
    present = [f"/dev/{name}" for name in _NVIDIA_SHARED if os.path.exists(f"{root}/dev/{name}")]
    mounts = [
        {"hostPath": path, "containerPath": path, "options": list(_FOR_READING)}
        for path in _nvidia_driver(root)
    ]
    shared = {"deviceNodes": [_node(root, path) for path in present], "mounts": mounts}
    return _spec("0.5.0", "nvidia.com/gpu", named, shared, aliases)


def _nvidia_uuids(root: str) -> Iterator[tuple[int, str]]:
    """Yield the number and UUID of each GPU that the driver reports."""
    directory = f"{root}/proc/driver/nvidia/gpus"
    try:
        places = sorted(os.listdir(directory))
    except OSError:
        return
    for place in places:
        with open(f"{directory}/{place}/information", encoding="ascii", errors="replace") as file:
            said = {
                key.strip(): value.strip() for key, _, value in (li.partition(":") for li in file)
            }
        if said.get("Device Minor", "").isdigit() and said.get("GPU UUID"):
            yield int(said["Device Minor"]), said["GPU UUID"]


def _nvidia_driver(root: str) -> list[str]:
    """Return the paths of the driver's libraries, with all of their names, and of its programs.

    Raise UserError if there is no libcuda.so.1.
    """
    places = (f"/usr/lib/{os.uname().machine}-linux-gnu", "/usr/lib64", "/usr/lib")
    place = next((p for p in places if os.path.exists(f"{root}{p}/libcuda.so.1")), None)
    if place is None:
        raise UserError(f"cdi: libcuda.so.1 is in none of {', '.join(places)} of this node")
    version = os.path.realpath(f"{root}{place}/libcuda.so.1").rpartition(".so.")[2]
    files = [f"{place}/{name}" for name in sorted(os.listdir(f"{root}{place}"))]
    libraries = [path for path in files if _is_drivers(os.path.realpath(f"{root}{path}"), version)]
    programs = [f"/usr/bin/{name}" for name in _NVIDIA_PROGRAMS]
    return libraries + [path for path in programs if os.path.exists(f"{root}{path}")]


def _is_drivers(path: str, version: str) -> bool:
    """Check whether the driver has this library: its file's name ends with the driver's version.

    Some libraries of the driver have versions of their own and are known by name.
    """
    file = os.path.basename(path)
    of_release = "." in version and file.endswith(f".so.{version}")
    return of_release or file.startswith(("libcuda.so", "libnvidia-"))


MAKERS: Mapping[str, Callable[[str], dict[str, Any]]] = {"amd": amd, "cxi": cxi, "nvidia": nvidia}


def _spec(
    version: str,
    kind: str,
    named: Mapping[int, Sequence[Mapping[str, Any]]],
    shared: object,
    aliases: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return a specification; `aliases` are further names for devices of `named`."""
    devices = [
        {"name": str(name), "containerEdits": {"deviceNodes": list(nodes)}}
        for name, nodes in (*named.items(), *aliases.items())
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
