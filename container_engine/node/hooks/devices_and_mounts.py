"""Select the devices and mounts of a hook that exist on this node, and check the node for it."""

from __future__ import annotations

import os

from container_engine.base.errors import LaunchError
from container_engine.node.container.description import NodeMount
from container_engine.node.hooks.node_fields import fill, known, missing
from container_engine.node.node_plan import holds
from container_engine.node.pattern import expand, has_wildcard, is_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from container_engine.node.container.edits import HookEdits
    from container_engine.node.plan_types import HookUse


def add_devices(edits: HookEdits, hook: HookUse, node: Mapping[str, str]) -> None:
    """Add the hook's devices to `edits`; a missing one is a lack unless it is optional."""
    for device in hook.get("devices", ()):
        if device.get("optional") and not known(device["path"], node):
            continue
        wanted = fill(device["path"], hook, node)
        found = [path for path in expand(wanted) if is_device(path)]
        if not found and not device.get("optional"):
            edits.add_unmet(hook, missing_path(hook, "device", wanted))
        edits.devices += [path for path in found if path not in edits.devices]
    for name in hook.get("cdi", ()):
        edits.cdi.setdefault(name, hook["name"])
    for name in hook.get("cdi_if_there", ()):
        edits.cdi_if_there.setdefault(name, hook["name"])


def add_mounts(edits: HookEdits, hook: HookUse, node: Mapping[str, str]) -> None:
    """Add the hook's mounts to `edits`; a missing source is a lack unless it is optional."""
    for mount in hook.get("mounts", ()):
        if mount.get("optional") and not known(mount["source"], node):
            continue
        source = fill(mount["source"], hook, node)
        found = expand(source)
        if not found and not mount.get("optional"):
            edits.add_unmet(hook, missing_path(hook, "mount source", source))
        target = fill(mount.get("target", ""), hook, node)
        edits.mounts += [
            NodeMount("bind", path, _target(path, target, source), mount.get("options", ()))
            for path in found
        ]


def check_node(edits: HookEdits, hook: HookUse, node: Mapping[str, str]) -> None:
    """Run the pre-flight checks that need no container; add problems to `edits`."""
    for check in hook.get("checks", ()):
        find_problem = ON_NODE.get(check["kind"])
        problem = find_problem(fill(check["subject"], hook, node), node) if find_problem else ""
        if problem:
            hint = f" ({check['hint']})" if check.get("hint") else ""
            if check["severity"] == "fail":
                where, remedy = f"hook {hook['name']}", check.get("hint")
                edits.add_unmet(hook, LaunchError(problem, remedy, "hook-check", where=where))
            else:
                edits.warn(hook, f"{problem}{hint}")


def _lacks_device(pattern: str, _node: Mapping[str, str]) -> str:
    found = any(is_device(path) for path in expand(pattern))
    return "" if found else f"no device '{pattern}' on this node"


def _lacks_variable(condition: str, node: Mapping[str, str]) -> str:
    return "" if holds(condition, node) else f"the step does not have {condition}"


def _lacks_group(name: str, _node: Mapping[str, str]) -> str:
    gid = group_id(name)
    if gid is None:
        return f"no group '{name}' on this node"
    return "" if gid in (os.getgid(), *os.getgroups()) else f"you are not in the group '{name}'"


def group_id(name: str) -> int | None:
    import grp

    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


ON_NODE: dict[str, Callable[[str, Mapping[str, str]], str]] = {
    "device": _lacks_device,
    "group": _lacks_group,
    "variable": _lacks_variable,
}


def _target(path: str, target: str, source: str) -> str:
    if not target:
        return path
    # paths that a pattern matches go into the target; a path without wildcards is mounted on it
    return f"{target.rstrip('/')}/{os.path.basename(path)}" if has_wildcard(source) else target


def missing_path(hook: HookUse, what: str, path: str) -> LaunchError:
    return missing(hook, f"{what} '{path}' does not exist on this node")
