"""Mount the directory in which Slurm's PMIx server lets the clients of a step keep files.

Slurm's server makes TmpFS/spmix_appdir_UID_JOB.STEP and has its clients use it. In a read-only
container they could not create it, and Open MPI would end in MPI_Init. No variable names its path.
"""

from __future__ import annotations

import os

from container_engine.base import slurm
from container_engine.node import node_name
from container_engine.node.container.description import NodeMount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.node.container.edits import HookEdits
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import HookUse

_DEFAULT = "/tmp"  # Slurm's own default
# A client of another release than the server may have other defaults: each task copies the server's
# choices from the variables on the right.
PER_TASK = {
    "PMIX_MCA_gds": "PMIX_GDS_MODULE",
    "PMIX_MCA_psec": "PMIX_SECURITY_MODE",
    "PMIX_MCA_ptl": "PMIX_PTL_MODULE",
}


def prepare(hook: HookUse, plan: NodePlan, node: Mapping[str, str], edits: HookEdits) -> None:
    del hook, plan
    edits.per_task |= PER_TASK
    edits.mounts += [NodeMount("bind", path, path, ("rw",)) for path in of_clients(node)]


def of_clients(node: Mapping[str, str]) -> list[str]:
    """Return the directory in which the step's PMIx server has its clients keep files, if any."""
    spool, step = os.path.split(node["CE_PMIX_DIR"].rstrip("/"))
    configuration = slurm.find_conf(node, (f"{spool}/conf-cache/slurm.conf",))
    place = slurm.conf_value(configuration, "TmpFS") if configuration else ""
    place = node_name.in_path(place or _DEFAULT, node)
    directory = f"{place}/spmix_appdir_{os.getuid()}_{step.partition('.')[2]}"
    return [directory] if os.path.isdir(directory) else []
