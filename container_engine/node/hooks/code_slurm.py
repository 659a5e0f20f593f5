"""Mount the host's files that Slurm's programs in the container need besides system directories.

Each is mounted below HOST, at its own path; spank_plugin/programs/host.c puts it into
place for these programs.
"""

from __future__ import annotations

import os

from container_engine.base import slurm
from container_engine.node.container.description import NodeMount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from container_engine.node.container.edits import HookEdits
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import HookUse

HOST = "/.container-engine/host"
PROGRAMS = "/.container-engine/slurm"
# The hook's data already mount these.
_SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64")
# For these top-level directories, the programs see what the container has there.
_CONTAINERS = frozenset(
    (
        *("boot", "dev", "home", "lost+found", "media", "mnt", "opt"),
        *("proc", "root", "run", "srv", "sys", "tmp", "var"),
    )
)


def prepare(hook: HookUse, plan: NodePlan, node: Mapping[str, str], edits: HookEdits) -> None:
    edits.mounts.append(NodeMount("bind", f"{edits.libexec}/slurm", PROGRAMS, ("ro",)))
    configuration = slurm.find_conf(node)
    if not configuration:
        edits.warn(hook, "this node has no slurm.conf: Slurm's programs will not work inside")
    taken = [mount.target for mount in edits.mounts]
    wanted = [
        (os.path.dirname(os.path.dirname(edits.libexec)), "ro"),
        *((path, "ro") for path in _of_slurm(configuration)),
        *((path, "rw") for path in _of_user(plan, node)),
        *((path, "rw") for path in _file_systems()),
    ]
    for path, access in wanted:
        target = HOST + path
        if _is_new(path, target, taken):
            taken.append(target)
            edits.mounts.append(NodeMount("bind", path, target, (access,)))
            # the mount point for the programs, which they could not create in a read-only
            # container
            edits.operations.append(("root-dir", [edits.root, path]))


def _is_new(path: str, target: str, taken: Iterable[str]) -> bool:
    if not os.path.isabs(path) or path == "/" or not os.path.isdir(path):
        return False
    if any(path == system or path.startswith(f"{system}/") for system in _SYSTEM):
        return False
    return not any(target == other or target.startswith(f"{other}/") for other in taken)


def _of_slurm(configuration: str) -> list[str]:
    """Return the directories of Slurm's own files: configuration, plugin list, munge's socket."""
    if not configuration:
        return []
    stack = slurm.conf_value(configuration, "PlugStackConfig")
    munge = slurm.conf_value(configuration, "AuthInfo").partition("socket=")[2].partition(",")[0]
    return [os.path.dirname(path) for path in (configuration, stack, munge) if path]


def _of_user(plan: NodePlan, node: Mapping[str, str]) -> list[str]:
    """Return the directories where `srun --environment` looks for environment files and images."""
    files = [os.path.dirname(path) for path in (*plan.files, *plan.image_paths)]
    named = [node.get(name, "") for name in ("HOME", "SCRATCH", "EDF_IMAGESTORE")]
    return [*named, *node.get("EDF_PATH", "").split(":"), *files]


def _file_systems() -> list[str]:
    """Return the host's top-level directories that no image has: the site's file systems."""
    return [f"/{name}" for name in sorted(os.listdir("/")) if name not in _CONTAINERS]
