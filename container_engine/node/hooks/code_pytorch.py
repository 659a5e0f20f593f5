"""Set the variables of torch.distributed from Slurm's description of a step."""

from __future__ import annotations

from container_engine.base.answers import without_record
from container_engine.node import step_port
from container_engine.node.node_name import expand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from container_engine.node.container.edits import HookEdits
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import HookUse


def prepare(hook: HookUse, plan: NodePlan, node: Mapping[str, str], edits: HookEdits) -> None:
    del plan
    edits.per_task |= {"RANK": "SLURM_PROCID", "LOCAL_RANK": "SLURM_LOCALID"}
    if hook["name"] != "pytorch" or "SLURM_JOB_ID" not in node:
        return
    edits.env |= {
        "WORLD_SIZE": _first(node, ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "1"),
        "MASTER_ADDR": first_host(_first(node, ("SLURM_STEP_NODELIST", "SLURM_NODELIST"), "")),
        "MASTER_PORT": hook["parameters"]["master_port"],
    }
    if not edits.env["MASTER_PORT"]:
        edits.port = step_port.of_step(without_record(node))
        edits.env["MASTER_PORT"] = edits.port


def first_host(nodes: str) -> str:
    """Return the first name of Slurm's node list."""
    return next(expand(nodes), "")


def _first(node: Mapping[str, str], names: Sequence[str], otherwise: str) -> str:
    """Return the first of the variables that is set, and ask for no other."""
    return next((node[name] for name in names if name in node), otherwise)
