"""A container that is saved at its end: where its image is made."""

from pathlib import Path

import pytest

from container_engine.errors import LaunchError
from container_engine.node.plan_types import LaunchPlan
from container_engine.node.start.saving import target


def wanted(path: Path | str, **node: str) -> str:
    plan = LaunchPlan(annotations={"com.ce.container_save": str(path)}, annotations_from={})
    return target(plan, {"SLURMD_NODENAME": "n7", "SLURM_STEP_NUM_NODES": "1", **node})


def test_several_nodes_have_an_image_each(tmp_path: Path) -> None:
    assert wanted(tmp_path / "x.sqsh") == f"{tmp_path}/x.sqsh"
    assert wanted(tmp_path / "x-%N", SLURM_STEP_NUM_NODES="2") == f"{tmp_path}/x-n7"
    with pytest.raises(LaunchError, match=r"--container-save: 2 nodes would write the same image"):
        wanted(tmp_path / "x", SLURM_STEP_NUM_NODES="2")


def test_a_place_without_a_file_is_refused_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="is a directory"):
        wanted(tmp_path)
    with pytest.raises(LaunchError, match="/no' does not exist on node n7"):
        wanted(tmp_path / "no/x.sqsh")
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match="/file' is not a directory on node n7"):
        wanted(tmp_path / "file/x.sqsh")
