"""CDI devices of this node: read their specification files, and turn them into edits.

The files are JSON or YAML, versions 0.1 to 1.1. Those of the node are trusted only if nobody but
root and the owner of the engine can change them; a user's own files must not name any program to
run. We resolve devices ourselves because Podman's reader knows only two directories, refuses files
of newer versions than itself, and passes on group numbers that a rootless container cannot have.
"""

from __future__ import annotations

import os
import stat

from container_engine.base.errors import LaunchError
from container_engine.base.files import read_trusted, trusted_files
from container_engine.node.container.checks import NodeDevice
from container_engine.node.container.description import NodeMount
from container_engine.node.plan_json import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from container_engine.node.container.edits import HookEdits
    from container_engine.oci.cdi import ContainerEdits, DeviceNode, Hook, Mount


VERSIONS = (*(f"0.{minor}.0" for minor in range(1, 9)), "1.0.0", "1.1.0")
STAGES = frozenset(
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
)
# sockets and directories of daemons come and go: without one, a container is as the node is
OF_DAEMONS = ("/run/", "/var/run/", "/tmp/")
_MAX_SIZE = 4 * 1024 * 1024
_ENDINGS = (".json", ".yaml", ".yml")
# the keys that each table may have, with their types; _PARTS also has the required keys
_SPEC: dict[str, type] = {
    "cdiVersion": str,
    "kind": str,
    "devices": list,
    **dict.fromkeys(("annotations", "containerEdits"), dict),
}
_DEVICE: dict[str, type] = {"name": str, "annotations": dict, "containerEdits": dict}
_EDITS: dict[str, type] = {
    **dict.fromkeys(("env", "deviceNodes", "netDevices", "mounts", "hooks"), list),
    "additionalGids": list,
    "intelRdt": dict,
}
_NODE: dict[str, type] = {
    **dict.fromkeys(("path", "hostPath", "type", "permissions"), str),
    **dict.fromkeys(("major", "minor", "fileMode", "uid", "gid"), int),
}
_MOUNT: dict[str, type] = {"hostPath": str, "containerPath": str, "options": list, "type": str}
_HOOK: dict[str, type] = {"hookName": str, "path": str, "args": list, "env": list, "timeout": int}
_OF_STRINGS = frozenset(["args", "options", "env"])
_PARTS: dict[str, tuple[dict[str, type], tuple[str, ...]]] = {
    "deviceNodes": (_NODE, ("path",)),
    "mounts": (_MOUNT, ("hostPath", "containerPath")),
    "hooks": (_HOOK, ("hookName", "path")),
}


class FaultError(ValueError):
    """A fault in a file's content."""


class Directory:
    """A directory of CDI files; a user's own must not name programs."""

    def __init__(self, path: str, *, is_users: bool) -> None:
        self.path = path
        self.is_users = is_users


class Device:
    """One device: its own edits, and the `shared` ones that its file has for all devices."""

    def __init__(self, name: str, file: str, edits: ContainerEdits, shared: ContainerEdits) -> None:
        self.name = name
        self.file = file
        self.edits = edits
        self.shared = shared


class Registry:
    """All devices of some directories; a later directory takes precedence over an earlier one.

    `asked` are the questions (base/answers.py) that were asked.
    """

    def __init__(self, places: Sequence[Directory]) -> None:
        self.places = places
        self.asked: dict[str, None] = {}
        self._devices: dict[str, Device] | None = None

    def read(self) -> Mapping[str, Device]:
        """Return the devices by name; the files are read once.

        Raise LaunchError for any that is not trusted or valid: it might have the wanted device.
        """
        if self._devices is None:
            found: dict[str, Device] = {}
            for place in self.places:
                found |= _read_directory(place, self.asked)
            self._devices = found
        return self._devices

    def find(self, name: str) -> Device | None:
        return self.read().get(name)

    def names(self) -> list[str]:
        return sorted(self.read())


def _read_directory(place: Directory, asked: dict[str, None]) -> dict[str, Device]:
    devices: dict[str, Device] = {}
    files = trusted_files(place.path, _ENDINGS, _MAX_SIZE, asked, is_users=place.is_users)
    try:
        for path, content in files:
            for device in _parsed(path, content, place):
                other = devices.setdefault(device.name, device)
                if other is not device:
                    raise LaunchError(
                        f"CDI device '{device.name}' is in two files of equal weight: {other.file}"
                        f" and {device.file}",
                        see="cdi-file",
                    )
    except OSError as error:
        raise _unusable(error.filename or place.path, f"{error.strerror}") from None
    return devices


def read_file(path: str) -> list[Device]:
    """Return the devices of one file. Raise LaunchError that names the file and the fault."""
    try:
        content = read_trusted(path, _MAX_SIZE)
    except OSError as error:
        raise _unusable(error.filename or path, f"{error.strerror}") from None
    return _parsed(path, content, Directory("", is_users=False))


def _parsed(path: str, content: bytes, place: Directory) -> list[Device]:
    try:
        return _devices(path, _parse(path, content.decode()), place)
    except RecursionError:
        raise _unusable(path, "nested too deeply") from None
    except ValueError as error:
        raise _unusable(path, str(error)) from None


def _unusable(path: str, reason: str) -> LaunchError:
    return LaunchError(reason, see="cdi-file", kind="CDI file", name=path)


def _parse(path: str, text: str) -> Any:  # noqa: ANN401  # such a file has any type
    if path.endswith(".json"):
        return parse_json(text)
    from container_engine.node.devices import yaml_text

    return yaml_text.parse(text)


def _devices(path: str, content: object, place: Directory) -> list[Device]:
    spec = _table(content, "", _SPEC, ("cdiVersion", "kind", "devices"))
    if spec["cdiVersion"] not in VERSIONS:
        raise FaultError(f"cdiVersion '{spec['cdiVersion']}' is not one of {', '.join(VERSIONS)}")
    vendor, slash, kind = spec["kind"].partition("/")
    if not (vendor and slash and kind):
        raise FaultError(f"kind '{spec['kind']}' is not VENDOR/CLASS")
    shared = _edits(spec.get("containerEdits", {}), "containerEdits", place)
    devices = []
    for index, item in enumerate(spec["devices"]):
        key = f"devices[{index}]"
        device = _table(item, key, _DEVICE, ("name",))
        edits = _edits(device.get("containerEdits", {}), f"{key}.containerEdits", place)
        devices.append(Device(f"{spec['kind']}={device['name']}", path, edits, shared))
    return devices


def _edits(content: object, key: str, place: Directory) -> ContainerEdits:
    found = _table(content, key, _EDITS, ())
    edits: ContainerEdits = found
    for name, (keys, required) in _PARTS.items():
        for index, item in enumerate(found.get(name, ())):
            _table(item, f"{key}.{name}[{index}]", keys, required)
    for hook in edits.get("hooks", ()):
        if hook["hookName"] not in STAGES:
            raise FaultError(f"{key}.hooks: '{hook['hookName']}' is not a stage")
        if not hook["path"].startswith("/"):
            raise FaultError(f"{key}.hooks: '{hook['path']}' is not an absolute path")
    if edits.get("hooks") and place.is_users:
        raise FaultError(f"{key}.hooks: a user's own file cannot run programs")
    if not all(isinstance(pair, str) and "=" in pair[1:] for pair in found.get("env", ())):
        raise FaultError(f"{key}.env: expected NAME=value")
    if not all(isinstance(number, int) for number in found.get("additionalGids", ())):
        raise FaultError(f"{key}.additionalGids: expected numbers")
    return edits


def _table(  # a table of the specification, of the given keys
    content: object, key: str, keys: Mapping[str, type], required: Sequence[str]
) -> Any:  # noqa: ANN401
    """Return the table without keys that are null. Raise FaultError for wrong names and types."""
    where = f"{key}." if key else ""
    if not isinstance(content, dict):
        raise FaultError(f"{key or 'the file'}: expected a table")
    table: dict[str, Any] = {name: value for name, value in content.items() if value is not None}
    for name, value in table.items():
        if name not in keys:
            raise FaultError(f"unknown key '{where}{name}'")
        if name in _OF_STRINGS and isinstance(value, list):
            if not all(isinstance(item, str) for item in value):
                raise FaultError(f"{where}{name}: expected strings")
        elif not isinstance(value, keys[name]) or (keys[name] is int and isinstance(value, bool)):
            raise FaultError(f"{where}{name}: wrong type of value")
    for name in required:
        if name not in table:
            raise FaultError(f"{where}{name} is missing")
    return table


_SHOWN = 12
_UPDATED = (
    "if the driver was updated, its CDI file must be made again (ce cdi generate KIND --check)"
)


def resolve_all(devices: Sequence[NodeDevice], registry: Registry, edits: HookEdits) -> None:
    """Add the changes of the plan's and its hooks' CDI devices to `edits`."""
    wanted = {
        name: NodeDevice(name, cdi=True, origin=f"hook {hook}") for name, hook in edits.cdi.items()
    }
    for device in devices:
        if device.cdi:
            wanted.setdefault(device.name, device)
    if wanted:
        add(wanted.values(), registry, edits)


def directories(of_site: Sequence[str], of_user: str, home: str) -> list[Directory]:
    """Return the directories of CDI files, of which later ones win.

    The last one is the user's own if the site allows one: `of_user`, below the home.
    """
    found = [Directory(path, is_users=False) for path in of_site]
    if of_user and home.startswith("/"):
        found.append(Directory(f"{home}/{of_user}", is_users=True))
    return found


def add(wanted: Iterable[NodeDevice], registry: Registry, edits: HookEdits) -> None:
    """Add the changes of these CDI devices to `edits`.

    A variable that a hook has set stays. An unknown device, a file that is not trusted or valid,
    and an edit that a rootless container cannot have are added to `edits.unmet`.
    """
    try:
        registry.read()
    except LaunchError as error:
        edits.unmet.append(("", error))
        return
    edits.asked |= registry.asked
    used: dict[str, None] = {}
    for one in wanted:
        try:
            _add(one, registry, used, edits)
        except LaunchError as error:
            if str(error) not in [str(other) for _hook, other in edits.unmet]:
                edits.unmet.append((edits.cdi.get(one.name, ""), error))


def _add(wanted: NodeDevice, registry: Registry, used: dict[str, None], edits: HookEdits) -> None:
    device, origin = registry.find(wanted.name), wanted.origin
    if device is None:
        said = unknown(wanted.name, registry)
        raise LaunchError(said, wanted.hint, "cdi-device-unknown", where=origin)
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
