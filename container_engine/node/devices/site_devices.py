"""Devices that the site gives to every container, on the nodes that have them.

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

_ORIGIN = "devices_if_there of the site"
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
    named = {name.partition("=")[0] for name in (*edits.cdi, *_named(plan))}
    names = [n for n in wanted if not n.startswith("/") and n.partition("=")[0] not in named]
    if not names:
        return
    try:
        registry = Registry(cdi.directories(plan["settings"], node.get("HOME", "")))
    except LaunchError as error:
        edits.warnings.append(f"{_ORIGIN}: none of them is given: {error}")
        return
    variables = {**node, **plan["image"]["env"], **edf}
    if any(name.startswith(f"{_NVIDIA}=") and registry.find(name) for name in names):
        edits.warnings.extend(_unknown_parts(variables))
    for name in names:
        _add(name, registry, variables, edits)


def _named(plan: Mapping[str, Any]) -> list[str]:
    texts = (device["name"] for device in plan["devices"] if device["cdi"])
    return [text if isinstance(text, str) else str(text[0]) for text in texts]


def _opens(path: str) -> bool:
    return os.access(path, os.R_OK) or os.access(path, os.W_OK)


def _add(
    name: str, registry: Registry, variables: Mapping[str, str | None], edits: HookEdits
) -> None:
    if registry.find(name) is None:
        return
    is_nvidias = name.startswith(f"{_NVIDIA}=")
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
                cdi.apply(chosen, device, _ORIGIN, edits)
        except LaunchError as error:
            edits.warnings.append(str(error))


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
