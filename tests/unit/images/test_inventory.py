"""Images in use by jobs: a node's notes in the store, and their expiry."""

import os
import time
from pathlib import Path

import pytest

from container_engine.images.store import inventory
from container_engine.images.store.inventory import InUse, Running
from container_engine.node.start import image_in_use

NAME = f"sha256-{'ab' * 32}-amd64.sqsh"
NODE = {"SLURM_JOB_ID": "12", "SLURM_NODEID": "0", "SLURM_CLUSTER_NAME": "alps"}
ME = os.getuid()


@pytest.fixture
def image(tmp_path: Path) -> str:
    path = tmp_path / "images" / NAME
    path.parent.mkdir()
    path.touch()
    return str(path)


def known(root: str | Path, running: Running) -> InUse:
    return inventory.in_use(str(root), inventory.links(str(root)), running)


def why(image: str, running: Running) -> str | None:
    return known(image.partition("/images/")[0], running).why_not(image)


def age(root: Path, seconds: float) -> None:
    """Make the links so many seconds old."""
    when = time.time() - seconds
    for link in (root / "uses").iterdir():
        os.utime(link, (when, when), follow_symlinks=False)


HOUR = 3600
LINK = f"12-abababababab.{ME}@alps"


def test_the_first_node_of_a_step_says_once_that_its_job_uses_an_image(
    image: str, tmp_path: Path
) -> None:
    image_in_use.note(image, {**NODE, "SLURM_NODEID": "1"})
    assert not (tmp_path / "uses").exists()
    for _step in range(2):
        image_in_use.note(image, NODE)
    assert os.listdir(tmp_path / "uses") == [LINK]
    assert why(image, Running("alps", {"12": ME}, ME)) == "in use by job 12"
    image_in_use.note(image, {**NODE, "SLURM_JOB_ID": "7"})
    assert why(image, Running("alps", {"7": ME, "12": ME}, ME)) == "in use by jobs 12, 7"


def test_a_link_with_a_future_mtime_expires_by_its_ctime(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may create links in the directory and set their times."""
    image_in_use.note(image, {**NODE, "SLURM_CLUSTER_NAME": "elsewhere"})
    image_in_use.note(image, NODE)
    age(tmp_path, -400 * 24 * HOUR)
    alps = Running("alps", {}, ME)
    assert "12 of cluster elsewhere" in (why(image, alps) or "")
    later = time.time() + 91 * 24 * HOUR
    monkeypatch.setattr(inventory, "now_at", lambda _directory: later)
    assert why(image, alps) is None


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
    image_in_use.note(path or image, NODE | node)
    assert not (tmp_path / "uses").exists()


def test_a_store_of_somebody_else_costs_a_start_nothing(tmp_path: Path) -> None:
    image_in_use.note(str(tmp_path / "gone/images" / NAME), NODE)
    (tmp_path / "file").touch()
    image_in_use.note(f"{tmp_path}/file/images/{NAME}", NODE)


def test_what_an_ended_job_has_left_is_named(image: str, tmp_path: Path) -> None:
    image_in_use.note(image, NODE)
    running = Running("alps", {"13": ME}, ME)
    assert why(image, running) == (
        "last used by job 12, which Slurm no longer lists; kept for an hour after its first use"
    )
    assert known(tmp_path, running).is_probably_over(image)
    another = known(tmp_path, Running("alps", {}, ME + 1, sees_all=False))
    assert another.why_not(image) == "in use by job 12"
    assert not another.is_probably_over(image)
    age(tmp_path, HOUR + 60)
    found = known(tmp_path, running)
    assert found.why_not(image) is None
    assert found.over == (f"{tmp_path}/uses/{LINK}",)


@pytest.mark.parametrize(
    ("running", "said"),
    [
        (Running("", None, ME), "in use by job 12"),
        (Running("todi", {}, ME), "in use by job 12 of cluster alps"),
        (Running("alps", {}, ME + 1, sees_all=False), "in use by job 12"),
    ],
    ids=["nobody to ask", "another cluster", "hidden jobs of others"],
)
def test_an_image_stays_if_its_use_cannot_be_determined(
    image: str, tmp_path: Path, running: Running, said: str
) -> None:
    image_in_use.note(image, NODE)
    age(tmp_path, 2 * HOUR)
    assert why(image, running) == said


def test_no_link_is_too_old_if_slurm_does_not_answer(image: str, tmp_path: Path) -> None:
    image_in_use.note(image, NODE)
    (link,) = inventory.links(str(tmp_path))
    assert link._replace(age_s=100 * 24 * HOUR).is_over(Running("todi", {}, ME))
    assert not link._replace(age_s=100 * 24 * HOUR).is_over(Running("", None, ME))


def test_files_that_are_no_links_of_ours_are_left_alone(image: str, tmp_path: Path) -> None:
    (tmp_path / "uses").mkdir()
    (tmp_path / "uses/12-ab@alps").touch()
    (tmp_path / "uses/notes").symlink_to(NAME)
    found = known(tmp_path, Running("alps", {}, ME))
    assert (found.jobs, found.over) == ({}, ())
    assert os.path.exists(image)


def test_a_job_that_begins_while_slurm_is_asked_is_not_taken_for_one_that_has_ended(
    image: str, tmp_path: Path
) -> None:
    found = inventory.links(str(tmp_path))
    image_in_use.note(image, NODE)
    age(tmp_path, 2 * HOUR)
    used = inventory.in_use(str(tmp_path), found, Running("alps", {}, ME))
    assert (used.why_not(image), used.over) == (None, ())
    assert used.why_not_now(image) == "in use by job 12"


def test_an_image_that_a_job_begins_to_use_while_it_is_removed_stays(
    image: str, tmp_path: Path
) -> None:
    used = known(tmp_path, Running("alps", {}, ME))
    inode = os.stat(image).st_ino
    image_in_use.note(image, NODE)
    assert inventory.take_away(image, used) == "in use by job 12"
    assert os.stat(image).st_ino == inode
    assert os.listdir(tmp_path / "images") == [NAME]
    assert inventory.take_away(image, inventory.NOTHING) is None
    assert os.listdir(tmp_path / "images") == []


# ---- a directory that everybody may write -------------------------------------------------------

OTHER = 61_001


def lie(root: Path, name: str, target: str) -> None:
    (root / "uses").mkdir(exist_ok=True)
    (root / "uses" / name).symlink_to(target)
    os.chown(root / "uses" / name, OTHER, OTHER, follow_symlinks=False)


@pytest.mark.parametrize("target", ["nothing", NAME])
def test_a_link_that_another_user_made_first_hides_nothing(
    image: str, tmp_path: Path, target: str
) -> None:
    lie(tmp_path, LINK, target)
    for _step in range(2):
        image_in_use.note(image, NODE)
    assert why(image, Running("alps", {"12": ME}, ME)) is not None


def test_another_users_link_pins_no_image(image: str, tmp_path: Path) -> None:
    lie(tmp_path, f"12-abababababab.{OTHER}@alps", NAME)
    found = known(tmp_path, Running("alps", {"12": ME}, ME))
    assert found.why_not(image) is None
    assert len(found.over) == 1
    assert why(image, Running("alps", {"12": OTHER}, ME)) == "in use by job 12"


def test_where_a_file_server_gives_all_files_to_one_user_links_of_that_user_count(
    image: str, tmp_path: Path
) -> None:
    lie(tmp_path, f"12-abababababab.{OTHER}@alps", NAME)
    os.chown(tmp_path / "uses", OTHER, OTHER)
    assert why(image, Running("alps", {"12": ME}, ME)) == "in use by job 12"


def test_a_link_of_an_unknown_cluster_does_not_count_for_ever(image: str, tmp_path: Path) -> None:
    image_in_use.note(image, {**NODE, "SLURM_CLUSTER_NAME": "elsewhere"})
    running = Running("alps", {}, ME)
    assert why(image, running) == "in use by job 12 of cluster elsewhere"
    age(tmp_path, 91 * 24 * HOUR)
    assert why(image, running) is None
