"""Make CDI specifications for NVIDIA's GPUs and their parts (MIG), and for channels of IMEX.

All that is needed is in /dev, /proc and /sys, where the driver says it: no library of the driver
is loaded, and a substitute for / will do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from container_engine.base.errors import UserError
from container_engine.tools.cdi.format import (
    Made,
    fields,
    listed,
    node,
    numbered,
    specification,
)
from container_engine.tools.cdi.nvidia_driver import Driver

if TYPE_CHECKING:
    from container_engine.oci.cdi import ContainerEdits, DeviceNode
    from container_engine.tools.cdi.format import Nodes

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
    numbers = numbered(f"{root}{_CHANNELS}", r"channel([0-9]+)")
    if not numbers:
        raise UserError(
            f"cdi: there is no channel of IMEX on this node: {_CHANNELS}/channel*", see="cdi-file"
        )
    named = {str(number): [node(root, f"{_CHANNELS}/channel{number}")] for number in numbers}
    return Made(specification("0.5.0", "nvidia.com/imex-channel", named, {}))


def _gpus(root: str) -> Sequence[tuple[int, str, str]]:
    """Return the minor number, UUID and PCI address of each GPU that has a device file.

    They are in the order of their addresses, as nvidia-smi counts them, if the driver names all.
    """
    numbers = numbered(f"{root}/dev", r"nvidia([0-9]+)")
    said = {}
    for bus in listed(f"{root}{_GPUS}"):
        has = fields(f"{root}{_GPUS}/{bus}/information")
        if has.get("Device Minor", "").isdigit():
            said[int(has["Device Minor"])] = has.get("GPU UUID", ""), bus
    order = [minor for minor in said if minor in numbers]
    if len(order) < len(numbers):
        order = numbers
    return [(minor, *said.get(minor, ("", ""))) for minor in order]


def _drawing(root: str, bus: str) -> list[DeviceNode]:
    """Return the nodes with which a GPU draws, which EGL and Vulkan open."""
    names = listed(f"{root}/sys/bus/pci/devices/{bus}/drm") if bus else []
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
