"""Devices that the site or a hook gives to containers on the nodes that have them.

The site lists them in `devices_if_there`, a hook in `cdi_if_there`. Two variables select among
NVIDIA's GPUs and the parts of their driver, as with NVIDIA's own tools: NVIDIA_VISIBLE_DEVICES and
NVIDIA_DRIVER_CAPABILITIES.
"""

from __future__ import annotations

import os

from container_engine.base.errors import LaunchError
from container_engine.node.devices import cdi
from container_engine.node.pattern import expand, is_device, matches, questions_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from container_engine.node.container.checks import Resolved
    from container_engine.node.container.edits import HookEdits
    from container_engine.node.devices.cdi import Registry
    from container_engine.node.node_plan import NodePlan
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


class _Offer:
    """CDI devices that a node may lack, of the hook named `hook`, or of the site if it is ""."""

    def __init__(self, names: Sequence[str], hook: str = "") -> None:
        self.names, self.hook = names, hook
        self.origin = f"hook {hook}" if hook else "devices_if_there of the site"

    def unreadable(self, error: LaunchError) -> str:
        which = "its cdi_if_there" if self.hook else "this list"
        return f"{self.origin}: no device of {which} is added: {error}"

    def fail(self, error: LaunchError, edits: HookEdits) -> None:
        """Record why a device of the node cannot be given: the start fails only for a hook's."""
        if self.hook:
            edits.unmet.append((self.hook, error))
        else:
            edits.warnings.append(str(error))

    def variables(self, found: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """Return the variables that select; a hook gives everything if they select nothing."""
        if not self.hook or found.get(VISIBLE):
            return found
        return {**found, VISIBLE: "all", CAPABILITIES: "all"}


def add(
    plan: NodePlan, here: Resolved, registry: Registry, node: Mapping[str, str], edits: HookEdits
) -> None:
    """Add the devices to `edits`, silently without those that this node lacks.

    No CDI device is added of a kind from which the environment or a hook already names one.
    """
    wanted = plan.devices_if_there
    patterns = [pattern for pattern in wanted if pattern.startswith("/")]
    for pattern in patterns:
        edits.asked |= questions_of(pattern)
    for path in (path for pattern in patterns for path in expand(pattern)):
        edits.asked[f"d{path}"] = None
        if path not in edits.devices and is_device(path) and _opens(path):
            edits.devices.append(path)
    offers = [_Offer([name], hook) for name, hook in edits.cdi_if_there.items()]
    offers.append(_Offer([name for name in wanted if not name.startswith("/")]))
    named = [device.name for device in here.devices if device.cdi]
    taken = {_kind(name) for name in (*edits.cdi, *named)}
    offers = [offer for offer in offers if any(_kind(name) not in taken for name in offer.names)]
    if not offers:
        return
    try:
        registry.read()
    except LaunchError as error:
        edits.warnings.extend(dict.fromkeys(offer.unreadable(error) for offer in offers))
        return
    edits.asked |= registry.asked
    known = {**plan.image_env, **here.env}
    found = {n: (known if n in known else node).get(n) for n in (VISIBLE, CAPABILITIES)}
    _add_offers(offers, taken, registry, found, edits)


def _add_offers(
    offers: Sequence[_Offer],
    taken: set[str],
    registry: Registry,
    found: Mapping[str, str | None],
    edits: HookEdits,
) -> None:
    """Add the offered devices that the node has; of a kind that a hook gives, not the site's."""
    of_hooks: set[str] = set()
    nvidias = False
    for offer in offers:
        hidden = taken if offer.hook else taken | of_hooks
        for name in offer.names:
            if _kind(name) in hidden or registry.find(name) is None:
                continue
            nvidias |= _kind(name) == KIND
            of_hooks |= {_kind(name)} if offer.hook else set()
            _add(name, offer, registry, offer.variables(found), edits)
    if nvidias:
        edits.warnings.extend(unknown_capabilities(found))


def _kind(name: str) -> str:
    return name.partition("=")[0]


def _opens(path: str) -> bool:
    return os.access(path, os.R_OK) or os.access(path, os.W_OK)


def _add(
    name: str,
    offer: _Offer,
    registry: Registry,
    variables: Mapping[str, str | None],
    edits: HookEdits,
) -> None:
    is_nvidias = _kind(name) == KIND
    used: dict[str, None] = {}
    for one in visible(name, variables) if is_nvidias else [name]:
        device = registry.find(one)
        if device is None:
            text = f"{VISIBLE}: {cdi.unknown(one, registry)}"
            edits.unmet.append(("", LaunchError(text, see="cdi-device-unknown")))
            continue
        parts = [device.edits] if device.file in used else [device.shared, device.edits]
        used[device.file] = None
        try:
            for part in parts:
                chosen = selected(part, variables) if is_nvidias else part
                cdi.apply(chosen, device, offer.origin, edits)
        except LaunchError as error:
            offer.fail(error, edits)
