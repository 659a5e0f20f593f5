"""Variables of torch.distributed, from Slurm's variables of a step."""

import pytest

from container_engine.node import slurm_step
from container_engine.node.container import environment
from container_engine.node.container.description import Paths
from container_engine.node.container.edits import HookEdits
from container_engine.node.hooks import built_in
from container_engine.node.node_plan import NodePlan
from container_engine.node.plan_types import HookUse

STEP = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_NTASKS": "99",
    "SLURM_STEP_NODELIST": "nid[001234-001235,2],login1",
    "SLURM_NODELIST": "other",
}


def edits(step: dict[str, str], name: str = "pytorch", port: str = "") -> HookEdits:
    made = HookEdits(Paths("/s", "/libexec"))
    hook = HookUse(name=name, parameters={"master_port": port})
    built_in.pytorch(hook, NodePlan(), step, made)
    return made


def test_the_first_node_of_the_step_is_the_master() -> None:
    made = edits(STEP)
    assert made.env["MASTER_ADDR"] == "nid001234"
    assert made.env["WORLD_SIZE"] == "8"
    assert made.per_task == {"RANK": "SLURM_PROCID", "LOCAL_RANK": "SLURM_LOCALID"}


def test_two_steps_and_two_jobs_get_other_ports() -> None:
    others = [STEP, {**STEP, "SLURM_STEP_ID": "3"}, {**STEP, "SLURM_JOB_ID": "18"}]
    ports = {slurm_step.port(step) for step in others}
    assert len(ports) == 3
    assert all(20000 <= int(port) < 30000 for port in ports)
    made = edits(STEP)
    assert made.env["MASTER_PORT"] == made.port == slurm_step.port(STEP)


def test_a_port_that_the_user_chose_counts() -> None:
    made = edits(STEP, port="4711")
    assert (made.env["MASTER_PORT"], made.port) == ("4711", "")


@pytest.mark.parametrize("name", ["pytorch", "pytorch_remap_vars"])
def test_without_slurm_nothing_but_the_ranks_is_asked_for(name: str) -> None:
    assert edits({}, name).env == {}


def test_pyxis_annotation_gives_the_ranks_only() -> None:
    made = edits(STEP, "pytorch_remap_vars")
    assert made.env == {}
    assert made.per_task["RANK"] == "SLURM_PROCID"


def test_a_tasks_own_variable_is_a_record_of_its_own() -> None:
    records = environment.encode_records({"A": "1", "B": None}, {"RANK": "SLURM_PROCID"})
    assert records == b"A=1\0B\0=RANK=SLURM_PROCID\0"
