"""Make CDI specifications for devices of a node: HPE's network devices, GPUs of AMD and NVIDIA."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from container_engine.base.errors import UserError
from container_engine.tools.cdi.format import (
    Made,
    listed,
    node,
    numbered,
    specification,
    text,
)
from container_engine.tools.cdi.nvidia import imex_channels, nvidia

if TYPE_CHECKING:
    from container_engine.oci.cdi import ContainerEdits

_AMD = "0x1002"
# the parts of a GPU in a mode that divides it are devices of the platform, not of the PCI bus
_AMD_PART = "amdgpu_xcp"
_FUNCTION_BITS = 3
_PROPERTY = re.compile(r"(?m)^(\w+) ([0-9]+)$")


def cxi(root: str) -> Made:
    """Return the specification of `hpe.com/cxi`: each device by its number, and `all`.

    `root` is / or a substitute for it. Raise UserError if there is no such device.
    """
    nodes = numbered(f"{root}/dev", r"cxi([0-9]+)")
    if not nodes:
        raise UserError(
            f"cdi: there is no {root.rstrip('/')}/dev/cxi* on this node", see="cdi-file"
        )
    named = {str(number): [node(root, f"/dev/cxi{number}")] for number in nodes}
    return Made(specification("0.5.0", "hpe.com/cxi", named, {}))


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
    for name in listed(nodes):
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
