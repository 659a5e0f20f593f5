"""Set the variables of torch.distributed from Slurm's description of a step."""

from __future__ import annotations

from container_engine.node.node_name import expand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.node.container.edits import HookEdits
    from container_engine.node.plan_types import HookUse, LaunchPlan

# Below Linux's range of ephemeral ports, so that a port is rarely in use.
_FIRST_PORT, _PORTS = 20000, 10000
_STEPS_APART = 16


def prepare(hook: HookUse, plan: LaunchPlan, node: Mapping[str, str], edits: HookEdits) -> None:
    del plan
    edits.per_task |= {"RANK": "SLURM_PROCID", "LOCAL_RANK": "SLURM_LOCALID"}
    if hook["name"] != "pytorch" or "SLURM_JOB_ID" not in node:
        return
    edits.env |= {
        "WORLD_SIZE": node.get("SLURM_STEP_NUM_TASKS", node.get("SLURM_NTASKS", "1")),
        "MASTER_ADDR": first_host(node.get("SLURM_STEP_NODELIST", node.get("SLURM_NODELIST", ""))),
        "MASTER_PORT": hook["parameters"]["master_port"] or port(node),
    }


def first_host(nodes: str) -> str:
    """Return the first name of Slurm's node list."""
    return next(expand(nodes), "")


def port(node: Mapping[str, str]) -> str:
    """Return a port that is the same on all nodes of a step and differs for most other steps."""
    job, step = (node.get(f"SLURM_{what}_ID", "0") for what in ("JOB", "STEP"))
    numbers = [int(number) if number.isdecimal() else 0 for number in (job, step)]
    return str(_FIRST_PORT + (numbers[0] * _STEPS_APART + numbers[1]) % _PORTS)
