"""Devices that the site or a hook gives to containers, on the nodes that have them.

For NVIDIA's GPUs two variables select what a container gets, as with NVIDIA's own tools:
NVIDIA_VISIBLE_DEVICES the devices, and NVIDIA_DRIVER_CAPABILITIES the parts of the driver.
"""

from __future__ import annotations

import os

from container_engine.errors import LaunchError
from container_engine.node.devices import cdi
from container_engine.node.devices.cdi_file import Registry
from container_engine.node.hooks.files import is_device
from container_engine.node.hooks.pattern import expand, matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from container_engine.node.hooks.edits import HookEdits

_VISIBLE, _CAPABILITIES = "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"
_NVIDIA = "nvidia.com/gpu"
_USUAL = "compute,utility"
# Neither names files here: `all` means every one, `compat32` libraries for programs of 32 bits.
_OTHERS = ("all", "compat32")
_GRAPHICS = (
    *("libEGL_nvidia.so*", "libGLESv*_nvidia.so*", "libGLX_nvidia.so*", "libnvidia-egl*.so*"),
    *("libnvidia-gl*.so*", "libnvidia-tls.so*", "libnvidia-rtcore.so*", "libnvidia-fbc.so*"),
    *("libnvidia-vulkan*.so*", "libnvoptix.so*", "libnvidia-wayland*.so*", "libnvidia-gtk*.so*"),
    *("libglxserver_nvidia.so*", "nvidia_drv.so", "nvidia_icd*.json", "nvidia_layers.json"),
    *("10_nvidia*.json", "15_nvidia*.json", "20_nvidia*.json", "nvoptix.bin"),
)
# Files of the driver by capability; all other files are for every capability.
_PARTS: dict[str, Sequence[str]] = {
    "compute": (
        *("libcuda.so*", "libcudadebugger.so*", "libnvidia-opencl.so*", "libnvidia-nvvm*.so*"),
        *("libnvidia-ptxjitcompiler.so*", "libnvidia-compiler.so*", "nvidia-cuda-mps-*"),
    ),
    "utility": (
        *("libnvidia-ml.so*", "libnvidia-cfg.so*", "nvidia-smi", "nvidia-debugdump"),
        "nvidia-persistenced",
    ),
    "video": (
        *("libnvcuvid.so*", "libnvidia-encode.so*", "libnvidia-opticalflow.so*"),
        "libvdpau_nvidia.so*",
    ),
    "graphics": _GRAPHICS,
    "display": _GRAPHICS,
    "ngx": ("libnvidia-ngx.so*", "nvidia-ngx-updater"),
}


class _Offer:
    """CDI devices that a node may lack: the site's, or those of one hook, which has a name."""

    def __init__(self, names: Sequence[str], hook: str = "") -> None:
        self.names, self.hook = names, hook
        self.origin = f"hook {hook}" if hook else "devices_if_there of the site"

    def unreadable(self, error: LaunchError) -> str:
        which = "its cdi_if_there" if self.hook else "them"
        return f"{self.origin}: none of {which} is given: {error}"

    def fail(self, error: LaunchError, edits: HookEdits) -> None:
        """Note why a device is not given that the node has."""
        if self.hook:
            edits.lacks.append((self.hook, error))
        else:
            edits.warnings.append(str(error))

    def variables(self, found: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """Return the variables that select; where nobody selects, a hook gives all there is."""
        if not self.hook or found.get(_VISIBLE):
            return found
        return {**found, _VISIBLE: "all", _CAPABILITIES: "all"}


def add(
    plan: Mapping[str, Any],
    node: Mapping[str, str],
    edf: Mapping[str, str | None],
    edits: HookEdits,
) -> None:
    """Add them to `edits`; silently leave out what this node does not have.

    A kind of CDI device of which the environment or a hook names a device is left to them.
    """
    wanted = plan["settings"].get("devices_if_there", ())
    paths = [path for pattern in wanted if pattern.startswith("/") for path in expand(pattern)]
    for path in paths:
        if path not in edits.devices and is_device(path) and _opens(path):
            edits.devices.append(path)
    offers = [_Offer([name], hook) for name, hook in edits.cdi_if_there.items()]
    offers.append(_Offer([name for name in wanted if not name.startswith("/")]))
    taken = {_kind(name) for name in (*edits.cdi, *_named(plan))}
    offers = [offer for offer in offers if any(_kind(name) not in taken for name in offer.names)]
    if not offers:
        return
    try:
        registry = Registry(cdi.directories(plan["settings"], node.get("HOME", "")))
    except LaunchError as error:
        edits.warnings.extend(dict.fromkeys(offer.unreadable(error) for offer in offers))
        return
    _add_offers(offers, taken, registry, {**node, **plan["image"]["env"], **edf}, edits)


def _add_offers(
    offers: Sequence[_Offer],
    taken: set[str],
    registry: Registry,
    found: Mapping[str, str | None],
    edits: HookEdits,
) -> None:
    """Add what the node has of the offers; the site's leave to hooks what those give."""
    of_hooks: set[str] = set()
    nvidias = False
    for offer in offers:
        hidden = taken if offer.hook else taken | of_hooks
        for name in offer.names:
            if _kind(name) in hidden or registry.find(name) is None:
                continue
            nvidias |= _kind(name) == _NVIDIA
            of_hooks |= {_kind(name)} if offer.hook else set()
            _add(name, offer, registry, offer.variables(found), edits)
    if nvidias:
        edits.warnings.extend(_unknown_parts(found))


def _kind(name: str) -> str:
    return name.partition("=")[0]


def _named(plan: Mapping[str, Any]) -> list[str]:
    texts = (device["name"] for device in plan["devices"] if device["cdi"])
    return [text if isinstance(text, str) else str(text[0]) for text in texts]


def _opens(path: str) -> bool:
    return os.access(path, os.R_OK) or os.access(path, os.W_OK)


def _add(
    name: str,
    offer: _Offer,
    registry: Registry,
    variables: Mapping[str, str | None],
    edits: HookEdits,
) -> None:
    is_nvidias = _kind(name) == _NVIDIA
    used: dict[str, None] = {}
    for one in _visible(name, variables) if is_nvidias else [name]:
        device = registry.find(one)
        if device is None:
            text = f"{_VISIBLE}: {cdi.unknown(one, registry)}"
            edits.lacks.append(("", LaunchError(text, see="cdi-device-unknown")))
            continue
        parts = [device.edits] if device.file in used else [device.shared, device.edits]
        used[device.file] = None
        try:
            for part in parts:
                chosen = _of_nvidia(part, variables) if is_nvidias else part
                cdi.apply(chosen, device, offer.origin, edits)
        except LaunchError as error:
            offer.fail(error, edits)


def _visible(name: str, variables: Mapping[str, str | None]) -> list[str]:
    """Return the devices in place of `name`, which may stand for all."""
    said = variables.get(_VISIBLE) or ""
    if said in ("", "all", "void", "none") or not name.endswith("=all"):
        return [name]
    return [f"{_NVIDIA}={word.strip()}" for word in said.split(",")]


def _of_nvidia(part: Mapping[str, Any], variables: Mapping[str, str | None]) -> Mapping[str, Any]:
    """Select device files unless the variable is "none", the driver unless "void" or unset.

    The driver is files, and programs that make them known. Variables and groups are for both.
    """
    said = variables.get(_VISIBLE) or "void"
    if said == "void":
        return {**part, "mounts": (), "hooks": ()}
    capabilities = (variables.get(_CAPABILITIES) or _USUAL).split(",")
    mounts = [mount for mount in part.get("mounts", ()) if _is_wanted(mount, capabilities)]
    nodes = () if said == "none" else part.get("deviceNodes", ())
    return {**part, "mounts": mounts, "deviceNodes": nodes}


def _unknown_parts(variables: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a warning of the words that choose no file of the driver, which nobody would miss."""
    known = (*_PARTS, *_OTHERS)
    words = [word.strip() for word in (variables.get(_CAPABILITIES) or "").split(",")]
    unknown = [word for word in words if word and word not in known]
    if unknown:
        named = ", ".join(f"'{word}'" for word in unknown)
        parts = ", ".join(sorted(known))
        yield f"{_CAPABILITIES}: the driver has no part {named} (its parts are {parts})"


def _is_wanted(mount: Mapping[str, Any], capabilities: Sequence[str]) -> bool:
    if "all" in capabilities:
        return True
    file = os.path.basename(mount["containerPath"])
    of = {name for name, parts in _PARTS.items() if any(matches(file, part) for part in parts)}
    return not of or not of.isdisjoint(word.strip() for word in capabilities)
