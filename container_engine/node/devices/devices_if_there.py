"""Devices that the site or a hook gives to containers on the nodes that have them.

The site lists them in `devices_if_there`, a hook in `cdi_if_there`. For NVIDIA's GPUs the variables
of nvidia_variables.py select what a container gets.
"""

from __future__ import annotations

import os

from container_engine.base.errors import LaunchError
from container_engine.node.devices import cdi, nvidia_variables
from container_engine.node.devices.cdi_file import Registry
from container_engine.node.devices.nvidia_variables import CAPABILITIES, KIND, VISIBLE
from container_engine.node.pattern import expand, is_device, questions_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from container_engine.node.container.edits import HookEdits
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import Device


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
    plan: NodePlan,
    node: Mapping[str, str],
    edf: Mapping[str, str | None],
    edits: HookEdits,
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
    taken = {_kind(name) for name in (*edits.cdi, *_named(plan.devices))}
    offers = [offer for offer in offers if any(_kind(name) not in taken for name in offer.names)]
    if not offers:
        return
    try:
        places = cdi.directories(plan.cdi_dirs, plan.user_cdi_dir, node.get("HOME", ""))
        registry = Registry(places)
    except LaunchError as error:
        edits.warnings.extend(dict.fromkeys(offer.unreadable(error) for offer in offers))
        return
    edits.asked |= registry.asked
    known = {**plan.image_env, **edf}
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
        edits.warnings.extend(nvidia_variables.unknown_capabilities(found))


def _kind(name: str) -> str:
    return name.partition("=")[0]


def _named(devices: Sequence[Device]) -> list[str]:
    texts = (device["name"] for device in devices if device["cdi"])
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
    is_nvidias = _kind(name) == KIND
    used: dict[str, None] = {}
    for one in nvidia_variables.visible(name, variables) if is_nvidias else [name]:
        device = registry.find(one)
        if device is None:
            text = f"{VISIBLE}: {cdi.unknown(one, registry)}"
            edits.unmet.append(("", LaunchError(text, see="cdi-device-unknown")))
            continue
        parts = [device.edits] if device.file in used else [device.shared, device.edits]
        used[device.file] = None
        try:
            for part in parts:
                chosen = nvidia_variables.selected(part, variables) if is_nvidias else part
                cdi.apply(chosen, device, offer.origin, edits)
        except LaunchError as error:
            offer.fail(error, edits)
