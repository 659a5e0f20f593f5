"""Compare a CDI file of any generator with the devices and the driver that the node has now."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from container_engine.base.errors import UserError
from container_engine.node.devices.cdi import OF_DAEMONS, Directory, read_file
from container_engine.node.libraries.trees import ImageTree
from container_engine.tools.cdi.generate import Made, node

if TYPE_CHECKING:
    from container_engine.oci.cdi import ContainerEdits, DeviceNode, Mount

_UUID = "GPU-"


def differences(path: str, made: Made, root: str) -> list[str]:
    """Return what no longer holds of a file, a line each; `made` is what the node has now.

    A file may bring more than `made`, and by other paths. Raise LaunchError for a file that cannot
    be used at all.
    """
    kind = f"{made.spec['kind']}="
    devices = [d for d in read_file(path, Directory("", is_users=False)) if d.name.startswith(kind)]
    if not devices:
        return [f"it has no device of {made.spec['kind']}"]
    theirs = {
        device.name[len(kind) :]: _nodes(device.shared) | _nodes(device.edits) for device in devices
    }
    parts = [part for device in devices for part in (device.shared, device.edits)]
    return [
        *_of_nodes(theirs, made, root),
        *_of_files([mount for part in parts for mount in part.get("mounts", ())], made, root),
    ]


def _nodes(part: ContainerEdits) -> dict[str, DeviceNode]:
    return {entry.get("hostPath", entry["path"]): entry for entry in part.get("deviceNodes", ())}


def _of_nodes(
    theirs: Mapping[str, Mapping[str, DeviceNode]], made: Made, root: str
) -> Iterator[str]:
    every = {path: entry for nodes in theirs.values() for path, entry in nodes.items()}
    for path, entry in every.items():
        said = _problem(root, path, entry)
        if said:
            yield said
    shared = _nodes(made.spec.get("containerEdits", {}))
    ours = {d["name"]: _nodes(d["containerEdits"]) for d in made.spec["devices"]}
    lacking = {path for nodes in (*ours.values(), shared) for path in nodes} - set(every)
    yield from (f"it lacks {path}" for path in sorted(lacking))
    for name, nodes in ours.items():
        changed = sorted(set(nodes) - set(theirs.get(name, nodes)) - lacking)
        yield from (f"device '{name}' is {path} now" for path in changed)
    uuids = {name for name in ours if name.startswith(_UUID)}
    gone = [name for name in theirs if uuids and name.startswith(_UUID) and name not in uuids]
    yield from (f"device '{name}' is not on this node" for name in gone)


def _problem(root: str, path: str, entry: DeviceNode) -> str:
    try:
        found = node(root, path)
    except OSError as error:
        return f"device node {path}: {error.strerror}"
    except UserError as error:
        return error.reason
    numbers = [entry.get(key, found[key]) for key in ("major", "minor")]
    if numbers != [found["major"], found["minor"]]:
        said = "{}:{}".format(*numbers)
        return f"device node {path} is {found['major']}:{found['minor']} now, not {said}"
    return ""


def _of_files(mounts: Sequence[Mount], made: Made, root: str) -> Iterator[str]:
    """Yield a line for files that are gone, and one for those of the driver that are new.

    New ones are told by the driver's version in their names, since generators differ in the rest.
    """
    tree = ImageTree(root or "/")
    binds = [mount["hostPath"] for mount in mounts if mount.get("type") != "tmpfs"]
    lasting = dict.fromkeys(path for path in binds if not path.startswith(OF_DAEMONS))
    gone = [path for path in lasting if not tree.exists(tree.real(path))]
    now = f", and the driver has version {made.version} now" if made.version else ""
    if gone:
        yield f"{_some(gone)} {'do' if len(gone) > 1 else 'does'} not exist{now}"
    has = {os.path.basename(path) for path in binds}
    made_mounts = made.spec.get("containerEdits", {}).get("mounts", ())
    ours = dict.fromkeys(mount["hostPath"] for mount in made_mounts)
    of_version = [path for path in ours if made.version and path.endswith(f".so.{made.version}")]
    new = [path for path in of_version if os.path.basename(path) not in has]
    if new:
        yield f"it lacks {_some(new)} of the driver, which has version {made.version} now"


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"'{paths[0]}'{more}"
