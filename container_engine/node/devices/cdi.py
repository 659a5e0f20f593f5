"""Turn CDI devices of this node, as its specification files have them, into a container's edits.

We resolve them ourselves because Podman's reader knows only two directories, refuses files of newer
versions than itself, and passes on group numbers that a rootless container cannot have.
`container_engine.node.devices.cdi_file` reads the files.
"""

from __future__ import annotations

import os
import stat

from container_engine.base.errors import LaunchError
from container_engine.node.container.checks import site_hint
from container_engine.node.container.description import NodeMount
from container_engine.node.devices.cdi_file import OF_DAEMONS, Device, Directory, Registry
from container_engine.node.plan_json import resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from container_engine.node.container.edits import HookEdits
    from container_engine.node.node_plan import NodePlan
    from container_engine.oci.cdi import ContainerEdits, DeviceNode, Hook, Mount


_SHOWN = 12
_UPDATED = (
    "if the driver was updated, its CDI file must be made again (ce cdi generate KIND --check)"
)


def resolve_all(plan: NodePlan, node: Mapping[str, str], edits: HookEdits) -> None:
    """Add the changes of the plan's and its hooks' CDI devices to `edits`."""
    places = directories(plan.cdi_dirs, plan.user_cdi_dir, node.get("HOME", ""))
    names = {name: f"hook {hook}" for name, hook in edits.cdi.items()}
    for device in plan.devices:
        if device["cdi"]:
            names.setdefault(resolve(device["name"], node, device["from"]), device["from"])
    if names:
        add(names, places, edits)


def directories(of_site: Sequence[str], of_user: str, home: str) -> list[Directory]:
    """Return the directories of CDI files, of which later ones win.

    The last one is the user's own if the site allows one: `of_user`, below the home.
    """
    found = [Directory(path, is_users=False) for path in of_site]
    if of_user and home.startswith("/"):
        found.append(Directory(f"{home}/{of_user}", is_users=True))
    return found


def add(names: Mapping[str, str], places: Sequence[Directory], edits: HookEdits) -> None:
    """Add the changes of the CDI devices `names` (each with its origin) to `edits`.

    A variable that a hook has set stays. An unknown device, a file that is not trusted or valid,
    and an edit that a rootless container cannot have are added to `edits.unmet`.
    """
    try:
        registry = Registry(places)
    except LaunchError as error:
        edits.unmet.append(("", error))
        return
    edits.asked |= registry.asked
    used: dict[str, None] = {}
    for name, origin in names.items():
        try:
            _add(name, origin, registry, used, edits)
        except LaunchError as error:
            if str(error) not in [str(other) for _hook, other in edits.unmet]:
                edits.unmet.append((edits.cdi.get(name, ""), error))


def _add(
    name: str, origin: str, registry: Registry, used: dict[str, None], edits: HookEdits
) -> None:
    device = registry.find(name)
    if device is None:
        said = unknown(name, registry)
        raise LaunchError(said, site_hint(origin), "cdi-device-unknown", where=origin)
    if device.file not in used:
        # edits for all devices of a file are applied once
        used[device.file] = None
        apply(device.shared, device, origin, edits)
    apply(device.edits, device, origin, edits)


def unknown(name: str, registry: Registry) -> str:
    """Return the message for the name of a device that no file has."""
    kind = name.partition("=")[0]
    same = [other for other in registry.names() if other.partition("=")[0] == kind]
    known = same or registry.names()
    shown = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    where = ", ".join(place.path for place in registry.places)
    has = f"this node has {shown}" if known else f"there is none in {where}"
    return f"device '{name}': no CDI device of that name, {has}"


def apply(part: ContainerEdits, device: Device, origin: str, edits: HookEdits) -> None:
    """Add CDI edits `part` of a device to `edits`. Raise LaunchError if they are impossible."""
    for key in ("intelRdt", "netDevices"):
        if part.get(key):
            raise _refused(device, origin, f"asks for {key}, which only root can have")
    for pair in part.get("env", ()):
        name, _equals, value = pair.partition("=")
        edits.env.setdefault(name, value)
    for node in part.get("deviceNodes", ()):
        _add_node(node, device, origin, edits)
    for mount in part.get("mounts", ()):
        _add_mount(mount, device, origin, edits)
    for hook in part.get("hooks", ()):
        if not _replaced(hook, edits):
            edits.oci_hooks.append(hook)
    # a container has the groups of its user, which may include the device's
    missing = sorted(set(part.get("additionalGids", ())) - {0} - {os.getgid(), *os.getgroups()})
    if missing:
        groups = ", ".join(map(_group, missing))
        edits.warnings.append(
            f"device '{device.name}' is for members of group {groups}, and you are not one: ask the"
            f" administrator to add you (additionalGids in {device.file})"
        )


def _group(number: int) -> str:
    import grp

    try:
        return f"{grp.getgrgid(number).gr_name} ({number})"
    except KeyError:
        return str(number)


def _add_node(node: DeviceNode, device: Device, origin: str, edits: HookEdits) -> None:
    inside = node["path"]
    outside = node.get("hostPath") or inside
    if ":" in inside or ":" in outside:
        raise _refused(device, origin, "Podman does not accept a device with a colon in its path")
    edits.asked[f"d{outside}"] = None
    try:
        mode = os.stat(outside).st_mode
    except OSError as error:
        raise _refused(device, origin, f"device node '{outside}': {error.strerror}") from None
    if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
        raise _refused(device, origin, f"'{outside}' is not a device")
    argument = outside if outside == inside else f"{outside}:{inside}"
    if argument not in edits.devices:
        edits.devices.append(argument)


def _add_mount(entry: Mount, device: Device, origin: str, edits: HookEdits) -> None:
    options = tuple(entry.get("options", ()))
    target = os.path.normpath("/" + entry["containerPath"].lstrip("/"))
    if entry.get("type") == "tmpfs":
        mount = NodeMount("tmpfs", "tmpfs", target, options)
    else:
        source = entry["hostPath"]
        edits.asked[f"p{source}"] = None
        if not os.path.exists(source):
            if source.startswith(OF_DAEMONS):
                return
            raise _refused(device, origin, f"mount source '{source}' does not exist", _UPDATED)
        mount = NodeMount("bind", source, target, options)
        if edits.brought.setdefault(target, source) != source:
            other = edits.brought[target]
            raise _refused(device, origin, f"'{source}' and '{other}' are both for '{target}'")
    if not any((m.source, m.target) == (mount.source, mount.target) for m in edits.mounts):
        edits.mounts.append(mount)


def _refused(device: Device, origin: str, message: str, hint: str | None = None) -> LaunchError:
    said = f"device '{device.name}' ({device.file}): {message}"
    return LaunchError(said, hint, "cdi-file", where=origin)


# The OCI hooks in the CDI files of NVIDIA's generator, nvidia-ctk: the engine does their work. They
# would run in the container that crun is making, with a read-only root or another C library than
# they expect, and each start would wait for them. The loader's cache and links are made by the look
# into the image (libraries/inject.py). What the others prevent does not happen here: a user
# namespace cannot make device nodes, and no mode of a device changes.
_PROGRAMS = ("nvidia-cdi-hook", "nvidia-ctk")
_WITHOUT_WORK = (
    *("chmod", "disable-device-node-modification", "enable-cuda-compat"),
    "update-application-profile",
)


def _replaced(hook: Hook, edits: HookEdits) -> bool:
    """Add what an OCI hook of NVIDIA's would do to `edits`; return False for all other hooks."""
    if os.path.basename(hook["path"]) not in _PROGRAMS:
        return False
    words = [word for word in hook.get("args", ())[1:] if word != "hook"]
    name = next((word for word in words if not word.startswith("-")), "")
    if name == "create-symlinks":
        for said in _values(words, "--link"):
            target, _colons, link = said.partition("::")
            edits.links.setdefault(os.path.normpath(f"/{link.lstrip('/')}"), target)
    elif name == "update-ldcache":
        edits.searched += [
            path for path in _values(words, "--folder") if path not in edits.searched
        ]
    else:
        return name in _WITHOUT_WORK
    return True


def _values(words: Sequence[str], option: str) -> Iterator[str]:
    """Yield the values of an option that may be repeated, as `--x VALUE` or `--x=VALUE`."""
    for index, word in enumerate(words):
        if word == option:
            yield from words[index + 1 : index + 2]
        elif word.startswith(f"{option}="):
            yield word[len(option) + 1 :]
