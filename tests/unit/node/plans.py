"""Launch plans as the node reads them, and what they contain."""

from collections.abc import Mapping, Sequence
from typing import Any

from container_engine.base.errors import LaunchError
from container_engine.node.container.checks import resolved, usable_devices, usable_mounts
from container_engine.node.container.description import NodeMount, Parts
from container_engine.node.node_plan import NodePlan, node_plan
from container_engine.oci.runtime import HookFile


def plan(**values: object) -> NodePlan:
    """Return a small plan, changed by `values`, among which may be settings."""
    return node_plan(document(**values))


def document(**values: object) -> Any:  # noqa: ANN401  # of any shape
    """Return a small plan as it arrives on a node, changed by `values`."""
    return {
        "version": 1,
        "image": {"path": "/i.sqsh", "env": {}, "entrypoint": [], "workdir": None},
        "workdir": "/",
        "workdir_from": "default",
        "writable": True,
        "entrypoint": [],
        "mounts": [],
        "devices": [],
        "env": [],
        "startup": [],
        "annotations": {},
        "settings": {
            "start_timeout_s": 120.0,
            "tmpfs_size": "50%",
            "root_remap": False,
            "allowed_devices": ["*"],
            "cdi_dirs": [],
            "user_cdi_dir": "",
            "hooks_dirs": [],
        },
        **values,
    }


def image(**variables: str) -> Any:  # noqa: ANN401
    return {"path": "/i.sqsh", "env": variables, "entrypoint": [], "workdir": None}


def entry(name: str, value: object) -> dict[str, object]:
    return {"name": name, "value": value, "from": "/e.toml:3"}


def mount(source: object, target: object, *options: str, kind: str = "bind") -> Any:  # noqa: ANN401
    return {
        "kind": kind,
        "source": source,
        "target": target,
        "options": list(options),
        "from": "/e.toml:4",
    }


def device(name: object, cdi: bool = False) -> Any:  # noqa: ANN401
    return {"name": name, "cdi": cdi, "from": "/e.toml:5"}


def variable(name: str, op: str = "", word: object = "") -> Any:  # noqa: ANN401
    return {"var": name, "op": op, "word": word}


def resolve_mounts(
    planned: Sequence[Any], node: Mapping[str, str], unmet: list[LaunchError]
) -> list[NodeMount]:
    """Return mounts of a plan as a node with these variables makes them."""
    return usable_mounts(resolved(NodePlan(mounts=planned), node).mounts, unmet)


def resolve_devices(
    planned: Sequence[Any],
    allowed: Sequence[str],
    node: Mapping[str, str],
    unmet: list[LaunchError],
) -> list[str]:
    """Return devices of a plan as a node with these variables gives them."""
    return usable_devices(resolved(NodePlan(devices=planned), node).devices, allowed, unmet)


def container(
    *mounts: NodeMount,
    ids: tuple[int, int] = (1000, 1001),
    writable: bool = True,
    entrypoint: tuple[str, ...] = (),
    devices: tuple[str, ...] = (),
    annotations: dict[str, str] | None = None,
    oci_hooks: Sequence[HookFile] = (),
    tmpfs_size: str = "1g",
    by_podman: bool = False,
) -> Parts:
    return Parts(
        uid=ids[0],
        gid=ids[1],
        writable=writable,
        entrypoint=entrypoint,
        workdir="/",
        mounts=mounts,
        devices=devices,
        annotations=annotations or {},
        oci_hooks=oci_hooks,
        tmpfs_size=tmpfs_size,
        by_podman=by_podman,
    )
