"""Which images jobs use: what a node notes in the store, and what becomes of it."""

import os
from pathlib import Path

import pytest

from container_engine.images import inuse
from container_engine.images.inuse import Running
from container_engine.launch import uses

NAME = f"sha256-{'ab' * 32}-amd64.sqsh"
NODE = {"SLURM_JOB_ID": "12", "SLURM_NODEID": "0", "SLURM_CLUSTER_NAME": "alps"}
ME = os.getuid()


@pytest.fixture
def image(tmp_path: Path) -> str:
    path = tmp_path / "images" / NAME
    path.parent.mkdir()
    path.touch()
    return str(path)


def why(image: str, running: Running) -> str | None:
    return inuse.in_use(image.partition("/images/")[0], running).why_not(image)


def test_the_first_node_of_a_step_says_once_that_its_job_uses_an_image(
    image: str, tmp_path: Path
) -> None:
    uses.note(image, {**NODE, "SLURM_NODEID": "1"})
    assert not (tmp_path / "uses").exists()
    for _step in range(2):
        uses.note(image, NODE)
    assert os.listdir(tmp_path / "uses") == ["12-abababababab@alps"]
    assert why(image, Running("alps", frozenset(["12"]), ME)) == "in use by job 12"
    uses.note(image, {**NODE, "SLURM_JOB_ID": "7"})
    assert why(image, Running("alps", frozenset(["7", "12"]), ME)) == "in use by jobs 12, 7"


@pytest.mark.parametrize(
    ("path", "node"),
    [
        ("/home/me/images/mine.sqsh", {}),
        ("/home/me/sha256-0.sqsh", {}),
        (None, {"SLURM_JOB_ID": "../../x"}),
        (None, {"SLURM_CLUSTER_NAME": "../x"}),
        (None, {"SLURM_JOB_ID": ""}),
    ],
)
def test_what_is_in_no_store_or_no_job_is_not_noted(
    image: str, tmp_path: Path, path: str | None, node: dict[str, str]
) -> None:
    uses.note(path or image, NODE | node)
    assert not (tmp_path / "uses").exists()


def test_a_store_of_somebody_else_costs_a_start_nothing(tmp_path: Path) -> None:
    uses.note(str(tmp_path / "gone/images" / NAME), NODE)
    (tmp_path / "file").touch()
    uses.note(f"{tmp_path}/file/images/{NAME}", NODE)


def test_what_an_ended_job_has_left_is_named(image: str, tmp_path: Path) -> None:
    uses.note(image, NODE)
    found = inuse.in_use(str(tmp_path), Running("alps", frozenset(["13"]), ME))
    assert found.why_not(image) is None
    assert found.over == (f"{tmp_path}/uses/12-abababababab@alps",)


@pytest.mark.parametrize(
    ("running", "said"),
    [
        (Running("", None, ME), "in use by job 12"),
        (Running("todi", frozenset(), ME), "in use by job 12 of cluster alps"),
        (Running("alps", frozenset(), ME + 1, sees_all=False), "in use by job 12"),
    ],
    ids=["nobody to ask", "another cluster", "hidden jobs of others"],
)
def test_of_what_cannot_be_known_an_image_stays(image: str, running: Running, said: str) -> None:
    uses.note(image, NODE)
    assert why(image, running) == said


def test_files_that_are_no_links_of_ours_are_left_alone(image: str, tmp_path: Path) -> None:
    (tmp_path / "uses").mkdir()
    (tmp_path / "uses/12-ab@alps").touch()
    (tmp_path / "uses/notes").symlink_to(NAME)
    assert inuse.in_use(str(tmp_path), Running("alps", frozenset(), ME)) == inuse.NOTHING
    assert os.path.exists(image)
