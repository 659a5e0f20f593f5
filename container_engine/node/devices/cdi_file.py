"""Read CDI specification files (JSON or YAML, versions 0.1 to 1.1): the devices of a node.

Files of the node are trusted only if nobody but root and the owner of the engine can change them.
A user's own files must not name any program to run.
"""

from __future__ import annotations

import os

from container_engine.base.errors import LaunchError
from container_engine.base.ownership import distrust, fault, looked_at
from container_engine.base.private_files import read_regular
from container_engine.node.plan_json import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from container_engine.oci.cdi import ContainerEdits

VERSIONS = (
    "0.1.0",
    "0.2.0",
    "0.3.0",
    "0.4.0",
    "0.5.0",
    "0.6.0",
    "0.7.0",
    "0.8.0",
    "1.0.0",
    "1.1.0",
)
STAGES = frozenset(
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
)
# sockets and directories of daemons come and go: without one, a container is as the node is
OF_DAEMONS = ("/run/", "/var/run/", "/tmp/")
_MAX_SIZE = 4 * 1024 * 1024
# the keys that each table may have, with their types; _PARTS also has the required keys
_SPEC: dict[str, type] = {
    "cdiVersion": str,
    "kind": str,
    "annotations": dict,
    "devices": list,
    "containerEdits": dict,
}
_DEVICE: dict[str, type] = {"name": str, "annotations": dict, "containerEdits": dict}
_EDITS: dict[str, type] = {
    "env": list,
    "deviceNodes": list,
    "netDevices": list,
    "mounts": list,
    "hooks": list,
    "additionalGids": list,
    "intelRdt": dict,
}
_NODE: dict[str, type] = {
    "path": str,
    "hostPath": str,
    "type": str,
    "major": int,
    "minor": int,
    "fileMode": int,
    "permissions": str,
    "uid": int,
    "gid": int,
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

    `asked` are the questions (base/answers.py) that were asked. Raise LaunchError for any
    file that is not trusted or valid: it might have the wanted device.
    """

    def __init__(self, places: Sequence[Directory]) -> None:
        self.places = places
        self.asked: dict[str, None] = {}
        self._devices: dict[str, Device] = {}
        for place in places:
            self._devices.update(_read_directory(place, self.asked))

    def find(self, name: str) -> Device | None:
        return self._devices.get(name)

    def names(self) -> list[str]:
        return sorted(self._devices)


def _read_directory(place: Directory, asked: dict[str, None]) -> dict[str, Device]:
    asked |= looked_at(place.path)
    try:
        names = sorted(os.listdir(place.path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise LaunchError(
            f"{error.strerror}", see="cdi-file", kind="CDI directory", name=place.path
        ) from None
    _check_owner(place.path, place)
    devices: dict[str, Device] = {}
    for name in names:
        if name.endswith((".json", ".yaml", ".yml")):
            asked |= looked_at(f"{place.path}/{name}")
            for device in read_file(f"{place.path}/{name}", place):
                other = devices.setdefault(device.name, device)
                if other is not device:
                    raise LaunchError(
                        f"CDI device '{device.name}' is in two files of equal weight: {other.file}"
                        f" and {device.file}",
                        see="cdi-file",
                    )
    return devices


def read_file(path: str, place: Directory) -> list[Device]:
    """Return the devices of one file. Raise LaunchError that names the file and the fault."""
    _check_owner(path, place)
    try:
        text = read_regular(path, _MAX_SIZE, follow=True).decode()
        return _devices(path, _parse(path, text), place)
    except OSError as error:
        raise LaunchError(f"{error.strerror}", see="cdi-file", kind="CDI file", name=path) from None
    except RecursionError:
        raise LaunchError("nested too deeply", see="cdi-file", kind="CDI file", name=path) from None
    except ValueError as error:
        raise LaunchError(str(error), see="cdi-file", kind="CDI file", name=path) from None


def _check_owner(path: str, place: Directory) -> None:
    """Raise LaunchError unless only trusted users can change the file or directory."""
    try:
        users = (0, os.getuid())
        found = fault(path, os.stat(path), users, owner="you") if place.is_users else distrust(path)
    except OSError as error:
        raise LaunchError(f"{error.strerror}", see="cdi-file", kind="CDI file", name=path) from None
    if found:
        raise LaunchError(found[1], see="cdi-file", kind="CDI file", name=found[0])


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
