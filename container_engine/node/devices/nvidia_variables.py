"""The variables that select NVIDIA's GPUs and parts of their driver, as with NVIDIA's own tools.

NVIDIA_VISIBLE_DEVICES selects the devices, NVIDIA_DRIVER_CAPABILITIES the parts of the driver.
"""

from __future__ import annotations

import os

from container_engine.node.pattern import matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from container_engine.oci.cdi import ContainerEdits

VISIBLE, CAPABILITIES = "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"
KIND = "nvidia.com/gpu"
_USUAL = "compute,utility"
# Valid words without an entry in _PARTS: `all` means every file, `compat32` 32-bit libraries.
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


def visible(name: str, variables: Mapping[str, str | None]) -> list[str]:
    """Return the devices that the variable names, in place of `name` if that means all GPUs."""
    said = variables.get(VISIBLE) or ""
    if said in ("", "all", "void", "none") or not name.endswith("=all"):
        return [name]
    return [f"{KIND}={word.strip()}" for word in said.split(",")]


def selected(part: ContainerEdits, variables: Mapping[str, str | None]) -> ContainerEdits:
    """Return the part of a CDI device's edits that the variables select.

    Device files are left out if NVIDIA_VISIBLE_DEVICES is "none". The driver, which is mounts and
    OCI hooks, is left out if it is "void", empty or unset. Variables and groups always stay.
    """
    said = variables.get(VISIBLE) or "void"
    if said == "void":
        return {**part, "mounts": (), "hooks": ()}
    capabilities = (variables.get(CAPABILITIES) or _USUAL).split(",")
    mounts = [mount for mount in part.get("mounts", ()) if _is_wanted(mount, capabilities)]
    nodes = () if said == "none" else part.get("deviceNodes", ())
    return {**part, "mounts": mounts, "deviceNodes": nodes}


def unknown_capabilities(variables: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a warning if words of NVIDIA_DRIVER_CAPABILITIES name no part of the driver."""
    known = (*_PARTS, *_OTHERS)
    words = [word.strip() for word in (variables.get(CAPABILITIES) or "").split(",")]
    unknown = [word for word in words if word and word not in known]
    if unknown:
        named = ", ".join(f"'{word}'" for word in unknown)
        parts = ", ".join(sorted(known))
        yield f"{CAPABILITIES}: the driver has no part {named} (its parts are {parts})"


def _is_wanted(mount: Mapping[str, Any], capabilities: Sequence[str]) -> bool:
    if "all" in capabilities:
        return True
    file = os.path.basename(mount["containerPath"])
    of = {name for name, parts in _PARTS.items() if any(matches(file, part) for part in parts)}
    return not of or not of.isdisjoint(word.strip() for word in capabilities)
