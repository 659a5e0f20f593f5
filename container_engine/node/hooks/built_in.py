"""Code for hooks that the engine knows itself; a module of a hook's own has such a function, too.

`nvidia_cuda_mps` shares the directory of the MPS server that the environment names. `pytorch` sets
what torch.distributed reads: ranks, their number, address and port of the first task.

`pmix` mounts the directory in which Slurm's PMIx server lets the clients of a step keep files.
Slurm's server makes TmpFS/spmix_appdir_UID_JOB.STEP and has its clients use it. In a read-only
container they could not create it, and Open MPI would end in MPI_Init. No variable names its path.

`slurm` mounts the host's files that Slurm's programs in the container need besides system
directories, each below HOST, at its own path; spank_plugin/programs/host.c puts it into place for
these programs.
"""

from __future__ import annotations

import os

from container_engine.node import slurm_step
from container_engine.node.container.checks import edf_settings
from container_engine.node.container.description import NodeMount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from container_engine.node.container.edits import HookEdits
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import HookUse

    Code = Callable[[HookUse, NodePlan, Mapping[str, str], HookEdits], None]


# ---- nvidia_cuda_mps -----------------------------------------------------------------------------

# must match the variables in hooks/nvidia_cuda_mps/hook.toml
_MPS_DIRECTORY = "/opt/oci-hooks/nvidia_cuda_mps"


def nvidia_cuda_mps(
    hook: HookUse, plan: NodePlan, node: Mapping[str, str], edits: HookEdits
) -> None:
    own = edf_settings(plan.env, node).get("CUDA_MPS_PIPE_DIRECTORY")
    if own:
        _share(hook["name"], own, edits)
    for name in ("pipe", "log"):
        options = ("mode=0700", "size=256m")
        edits.mounts.append(NodeMount("tmpfs", "tmpfs", f"{_MPS_DIRECTORY}/{name}", options))


def _share(name: str, directory: str, edits: HookEdits) -> None:
    """Accept the daemon of the user or of another step for the directory, and do not stop it."""
    for service in edits.services:
        if service.get("hook") == name:
            service.update(ready=f"{directory}/control", stop=[])


# ---- pmix ----------------------------------------------------------------------------------------

_SLURMS_TMPFS = "/tmp"  # Slurm's own default
# A client of another release than the server may have other defaults: each task copies the server's
# choices from the variables on the right.
PER_TASK = {
    "PMIX_MCA_gds": "PMIX_GDS_MODULE",
    "PMIX_MCA_psec": "PMIX_SECURITY_MODE",
    "PMIX_MCA_ptl": "PMIX_PTL_MODULE",
}


def pmix(hook: HookUse, plan: NodePlan, node: Mapping[str, str], edits: HookEdits) -> None:
    del hook, plan
    edits.per_task |= PER_TASK
    edits.mounts += [NodeMount("bind", path, path, ("rw",)) for path in of_clients(node)]


def of_clients(node: Mapping[str, str]) -> list[str]:
    """Return the directory in which the step's PMIx server has its clients keep files, if any."""
    from container_engine.base.slurm import conf_value, find_conf

    spool, step = os.path.split(node["CE_PMIX_DIR"].rstrip("/"))
    configuration = find_conf(node, (f"{spool}/conf-cache/slurm.conf",))
    place = conf_value(configuration, "TmpFS") if configuration else ""
    place = slurm_step.in_path(place or _SLURMS_TMPFS, node)
    directory = f"{place}/spmix_appdir_{os.getuid()}_{step.partition('.')[2]}"
    return [directory] if os.path.isdir(directory) else []


# ---- pytorch -------------------------------------------------------------------------------------


def pytorch(hook: HookUse, plan: NodePlan, node: Mapping[str, str], edits: HookEdits) -> None:
    del plan
    edits.per_task |= {"RANK": "SLURM_PROCID", "LOCAL_RANK": "SLURM_LOCALID"}
    if hook["name"] != "pytorch" or "SLURM_JOB_ID" not in node:
        return
    nodes = _first(node, ("SLURM_STEP_NODELIST", "SLURM_NODELIST"), "")
    edits.env |= {
        "WORLD_SIZE": _first(node, ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "1"),
        "MASTER_ADDR": next(slurm_step.expand(nodes), ""),
        "MASTER_PORT": hook["parameters"]["master_port"],
    }
    if not edits.env["MASTER_PORT"]:
        from container_engine.base.answers import without_record

        edits.port = slurm_step.port(without_record(node))
        edits.env["MASTER_PORT"] = edits.port


def _first(node: Mapping[str, str], names: Sequence[str], otherwise: str) -> str:
    """Return the first of the variables that is set, and ask for no other."""
    return next((node[name] for name in names if name in node), otherwise)


# ---- slurm ---------------------------------------------------------------------------------------

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


def slurm(hook: HookUse, plan: NodePlan, node: Mapping[str, str], edits: HookEdits) -> None:
    from container_engine.base.slurm import find_conf

    edits.mounts.append(NodeMount("bind", f"{edits.libexec}/slurm", PROGRAMS, ("ro",)))
    configuration = find_conf(node)
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
    from container_engine.base.slurm import conf_value

    stack = conf_value(configuration, "PlugStackConfig")
    munge = conf_value(configuration, "AuthInfo").partition("socket=")[2].partition(",")[0]
    return [os.path.dirname(path) for path in (configuration, stack, munge) if path]


def _of_user(plan: NodePlan, node: Mapping[str, str]) -> list[str]:
    """Return the directories where `srun --environment` looks for environment files and images."""
    files = [os.path.dirname(path) for path in (*plan.files, *plan.image_paths)]
    named = [node.get(name, "") for name in ("HOME", "SCRATCH", "EDF_IMAGESTORE")]
    return [*named, *node.get("EDF_PATH", "").split(":"), *files]


def _file_systems() -> list[str]:
    """Return the host's top-level directories that no image has: the site's file systems."""
    return [f"/{name}" for name in sorted(os.listdir("/")) if name not in _CONTAINERS]


CODE: Mapping[str, Code] = {
    "nvidia_cuda_mps": nvidia_cuda_mps,
    "pmix": pmix,
    "pytorch": pytorch,
    "slurm": slurm,
}
