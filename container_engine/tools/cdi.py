"""Make CDI specifications for devices of a node, or compare a file of any generator with them.

The devices are HPE's for networks and GPUs of AMD and NVIDIA. All that is needed is in /dev, /proc
and /sys, where the drivers say it: no library of a driver is loaded, and a substitute for / will
do.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from container_engine.base.errors import UserError
from container_engine.base.files import names_in
from container_engine.node.devices.cdi import OF_DAEMONS, read_file
from container_engine.node.libraries.trees import ImageTree
from container_engine.tools.nvidia_driver import Driver

if TYPE_CHECKING:
    from container_engine.oci.cdi import ContainerEdits, Device, DeviceNode, Mount, Spec

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
    names = names_in(directory)
    return sorted(int(found[1]) for name in names if (found := re.fullmatch(pattern, name)))


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


_SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
# CUDA does not start without these, and the driver makes them on first use
_NEEDED = ("nvidiactl", "nvidia-uvm")
_NO_DEVICE = "there is no {}, which CUDA needs: run nvidia-modprobe -u -c 0, and this once more"
_GPUS, _CAPABILITIES = "/proc/driver/nvidia/gpus", "/proc/driver/nvidia/capabilities"
_CHANNELS = "/dev/nvidia-caps-imex-channels"


def nvidia(root: str) -> Made:
    """Return the specification of `nvidia.com/gpu`: each GPU by index and UUID, and `all`.

    A divided GPU is not in it, but its parts, as INDEX:PART. Everything comes with the files of the
    driver, at the paths that they have on the node. Raise UserError if there is no GPU or driver.
    """
    gpus = _gpus(root)
    if not gpus:
        raise UserError("cdi: there is no NVIDIA GPU on this node: /dev/nvidia*", see="cdi-file")
    named: dict[str, Nodes] = {}
    aliases: dict[str, Nodes] = {}
    for index, (minor, uuid, bus) in enumerate(gpus):
        own = node(root, f"/dev/nvidia{minor}")
        parts = list(_parts(root, minor))
        for part, capabilities in enumerate(parts):
            named[f"{index}:{part}"] = [own, *(node(root, path) for path in capabilities)]
        if not parts:
            named[str(index)] = [own, *_drawing(root, bus)]
            aliases |= {uuid: named[str(index)]} if uuid else {}
    present = [f"/dev/{name}" for name in _SHARED if os.path.exists(f"{root}/dev/{name}")]
    driver = Driver(root)
    lacking = [f"/dev/{name}" for name in _NEEDED if f"/dev/{name}" not in present]
    warnings = [_NO_DEVICE.format(path) for path in lacking]
    shared: ContainerEdits = {"deviceNodes": [node(root, path) for path in present]}
    shared["mounts"] = driver.mounts()
    spec = specification("0.5.0", "nvidia.com/gpu", named, shared, aliases)
    return Made(spec, driver.version, [*warnings, *driver.warnings])


def imex_channels(root: str) -> Made:
    """Return the specification of `nvidia.com/imex-channel`: each channel, and `all`.

    Jobs with the same channel share memory of GPUs between nodes, so this is a kind of its own:
    only environments that name a channel get it. Raise UserError if there is none.
    """
    there_is_none = f"there is no channel of IMEX on this node: {_CHANNELS}/channel*"
    return _by_number(root, "nvidia.com/imex-channel", f"{_CHANNELS}/channel", there_is_none)


def _gpus(root: str) -> Sequence[tuple[int, str, str]]:
    """Return the minor number, UUID and PCI address of each GPU that has a device file.

    They are in the order of their addresses, as nvidia-smi counts them, if the driver names all.
    """
    numbers = numbered(f"{root}/dev", r"nvidia([0-9]+)")
    said = {}
    for bus in names_in(f"{root}{_GPUS}"):
        has = fields(f"{root}{_GPUS}/{bus}/information")
        if has.get("Device Minor", "").isdigit():
            said[int(has["Device Minor"])] = has.get("GPU UUID", ""), bus
    order = [minor for minor in said if minor in numbers]
    if len(order) < len(numbers):
        order = numbers
    return [(minor, *said.get(minor, ("", ""))) for minor in order]


def _drawing(root: str, bus: str) -> list[DeviceNode]:
    """Return the nodes with which a GPU draws, which EGL and Vulkan open."""
    names = names_in(f"{root}/sys/bus/pci/devices/{bus}/drm") if bus else []
    paths = [f"/dev/dri/{name}" for name in names if re.fullmatch("(card|renderD)[0-9]+", name)]
    return [node(root, path) for path in paths if os.path.exists(f"{root}{path}")]


def _parts(root: str, minor: int) -> Iterator[list[str]]:
    """Yield the device files of each compute instance of a divided GPU and of its GPU instance."""
    top = f"{root}{_CAPABILITIES}/gpu{minor}/mig"
    for gpu in numbered(top, r"gi([0-9]+)"):
        for compute in numbered(f"{top}/gi{gpu}", r"ci([0-9]+)"):
            entries = (f"{top}/gi{gpu}/access", f"{top}/gi{gpu}/ci{compute}/access")
            numbers = [fields(entry).get("DeviceFileMinor", "") for entry in entries]
            yield [f"/dev/nvidia-caps/nvidia-cap{number}" for number in numbers]


_AMD = "0x1002"
# the parts of a GPU in a mode that divides it are devices of the platform, not of the PCI bus
_AMD_PART = "amdgpu_xcp"
_FUNCTION_BITS = 3
_PROPERTY = re.compile(r"(?m)^(\w+) ([0-9]+)$")


def cxi(root: str) -> Made:
    """Return the specification of `hpe.com/cxi`: each device by its number, and `all`.

    `root` is / or a substitute for it. Raise UserError if there is no such device.
    """
    there_is_none = f"there is no {root.rstrip('/')}/dev/cxi* on this node"
    return _by_number(root, "hpe.com/cxi", "/dev/cxi", there_is_none)


def _by_number(root: str, kind: str, stem: str, there_is_none: str) -> Made:
    """Return the specification of device files: each by the number after STEM, and `all`."""
    directory, _slash, name = stem.rpartition("/")
    numbers = numbered(f"{root}{directory}", f"{name}([0-9]+)")
    if not numbers:
        raise UserError(f"cdi: {there_is_none}", see="cdi-file")
    named = {str(number): [node(root, f"{stem}{number}")] for number in numbers}
    return Made(specification("0.5.0", kind, named, {}))


def amd(root: str) -> Made:
    """Return the specification of `amd.com/gpu`: each GPU by its index on the node, and `all`.

    A GPU's index is that of AMD's own tools: in the order of the PCI bus, parts of a divided GPU
    one after the other. Every GPU comes with /dev/kfd. The groups of the device nodes are listed
    (additionalGids): a rootless container cannot grant them, but a launch can report which one the
    user lacks. Raise UserError if there is no AMD GPU.
    """
    renders = [n for n in numbered(f"{root}/dev/dri", r"renderD([0-9]+)") if _is_amds(root, n)]
    if not renders or not os.path.exists(f"{root}/dev/kfd"):
        raise UserError(
            "cdi: there is no AMD GPU on this node: /dev/kfd and /dev/dri/renderD*", see="cdi-file"
        )
    places = _pci_places(root)
    renders.sort(key=lambda number: (places.get(number, (1 << 32, 0)), number))
    named = {}
    for index, number in enumerate(renders):
        cards = numbered(f"{root}/sys/class/drm/renderD{number}/device/drm", r"card([0-9]+)")
        paths = [f"/dev/dri/renderD{number}", *(f"/dev/dri/card{card}" for card in cards)]
        named[str(index)] = [node(root, path) for path in paths if os.path.exists(f"{root}{path}")]
    given = ["/dev/kfd", *(entry["path"] for nodes in named.values() for entry in nodes)]
    groups = sorted({os.stat(f"{root}{path}").st_gid for path in given} - {0})
    shared: ContainerEdits = {"deviceNodes": [node(root, "/dev/kfd")]}
    if groups:
        shared["additionalGids"] = groups
    return Made(specification("0.7.0", "amd.com/gpu", named, shared))


def _is_amds(root: str, render: int) -> bool:
    device = f"{root}/sys/class/drm/renderD{render}/device"
    is_part = os.path.basename(os.path.realpath(device)).startswith(_AMD_PART)
    return is_part or text(f"{device}/vendor").strip() == _AMD


def _pci_places(root: str) -> dict[int, tuple[int, int]]:
    """Return the PCI domain and device of each render node that AMD's driver computes on."""
    nodes = f"{root}/sys/class/kfd/kfd/topology/nodes"
    places = {}
    for name in names_in(nodes):
        has = dict(_PROPERTY.findall(text(f"{nodes}/{name}/properties")))
        if "drm_render_minor" in has and "location_id" in has:
            place = int(has.get("domain", 0)), int(has["location_id"]) >> _FUNCTION_BITS
            places[int(has["drm_render_minor"])] = place
    return places


MAKERS: Mapping[str, Callable[[str], Made]] = {
    "amd": amd,
    "cxi": cxi,
    "nvidia": nvidia,
    "nvidia-imex": imex_channels,
}


_UUID = "GPU-"


def differences(path: str, made: Made, root: str) -> list[str]:
    """Return what no longer holds of a file, a line each; `made` is what the node has now.

    A file may bring more than `made`, and by other paths. Raise LaunchError for a file that cannot
    be used at all.
    """
    kind = f"{made.spec['kind']}="
    devices = [d for d in read_file(path) if d.name.startswith(kind)]
    if not devices:
        return [f"it has no device of {made.spec['kind']}"]
    theirs = {
        device.name[len(kind) :]: _nodes(device.shared) | _nodes(device.edits) for device in devices
    }
    parts = [part for device in devices for part in (device.shared, device.edits)]
    return [
        *_of_nodes(theirs, made, root),
        *_of_files([mount for part in parts for mount in part.get("mounts", ())], made, root),
    ]


def _nodes(part: ContainerEdits) -> dict[str, DeviceNode]:
    return {entry.get("hostPath", entry["path"]): entry for entry in part.get("deviceNodes", ())}


def _of_nodes(
    theirs: Mapping[str, Mapping[str, DeviceNode]], made: Made, root: str
) -> Iterator[str]:
    every = {path: entry for nodes in theirs.values() for path, entry in nodes.items()}
    for path, entry in every.items():
        said = _problem(root, path, entry)
        if said:
            yield said
    shared = _nodes(made.spec.get("containerEdits", {}))
    ours = {d["name"]: _nodes(d["containerEdits"]) for d in made.spec["devices"]}
    lacking = {path for nodes in (*ours.values(), shared) for path in nodes} - set(every)
    yield from (f"it lacks {path}" for path in sorted(lacking))
    for name, nodes in ours.items():
        changed = sorted(set(nodes) - set(theirs.get(name, nodes)) - lacking)
        yield from (f"device '{name}' is {path} now" for path in changed)
    uuids = {name for name in ours if name.startswith(_UUID)}
    gone = [name for name in theirs if uuids and name.startswith(_UUID) and name not in uuids]
    yield from (f"device '{name}' is not on this node" for name in gone)


def _problem(root: str, path: str, entry: DeviceNode) -> str:
    try:
        found = node(root, path)
    except OSError as error:
        return f"device node {path}: {error.strerror}"
    except UserError as error:
        return error.reason
    numbers = [entry.get(key, found[key]) for key in ("major", "minor")]
    if numbers != [found["major"], found["minor"]]:
        said = "{}:{}".format(*numbers)
        return f"device node {path} is {found['major']}:{found['minor']} now, not {said}"
    return ""


def _of_files(mounts: Sequence[Mount], made: Made, root: str) -> Iterator[str]:
    """Yield a line for files that are gone, and one for those of the driver that are new.

    New ones are told by the driver's version in their names, since generators differ in the rest.
    """
    tree = ImageTree(root or "/")
    binds = [mount["hostPath"] for mount in mounts if mount.get("type") != "tmpfs"]
    lasting = dict.fromkeys(path for path in binds if not path.startswith(OF_DAEMONS))
    gone = [path for path in lasting if not tree.has(tree.real(path))]
    now = f", and the driver has version {made.version} now" if made.version else ""
    if gone:
        yield f"{_some(gone)} {'do' if len(gone) > 1 else 'does'} not exist{now}"
    has = {os.path.basename(path) for path in binds}
    made_mounts = made.spec.get("containerEdits", {}).get("mounts", ())
    ours = dict.fromkeys(mount["hostPath"] for mount in made_mounts)
    of_version = [path for path in ours if made.version and path.endswith(f".so.{made.version}")]
    new = [path for path in of_version if os.path.basename(path) not in has]
    if new:
        yield f"it lacks {_some(new)} of the driver, which has version {made.version} now"


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"'{paths[0]}'{more}"
