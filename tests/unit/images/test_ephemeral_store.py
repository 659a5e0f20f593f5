"""Image stores for one launch: when they are made, and which process removes them."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.images.store import ephemeral_store
from container_engine.images.store.ephemeral_store import EphemeralStore


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": f"{tmp_path}/home", "SLURM_JOB_ID": "12"}


def recorded(env: dict[str, str]) -> list[str]:
    return sorted(os.listdir(ephemeral_store.records(env)))


def test_a_store_is_private_made_when_it_is_needed_and_removed(
    tmp_path: Path, env: dict[str, str]
) -> None:
    made = EphemeralStore(env, f"{tmp_path}/place", os.getpid())
    made.remove()
    assert not (tmp_path / "place").exists()
    store = made.store("amd64")
    assert store.root == made.store("arm64").root
    assert os.stat(store.root).st_mode & 0o777 == 0o700
    [record] = recorded(env)
    assert record.startswith("12-")
    assert os.readlink(f"{ephemeral_store.records(env)}/{record}") == store.root
    assert ephemeral_store.dead(env) == []
    made.remove()
    assert os.listdir(tmp_path / "place") == recorded(env) == []


def test_what_a_killed_process_left_is_removed_by_the_next(
    tmp_path: Path, env: dict[str, str]
) -> None:
    with subprocess.Popen(["sleep", "60"]) as owner:
        left = EphemeralStore(env, str(tmp_path), owner.pid).store("amd64").root
        owner.kill()
    new = EphemeralStore(env, str(tmp_path), os.getpid())
    new.store("amd64")
    assert not os.path.exists(left)
    assert len(recorded(env)) == 1


def test_what_belongs_to_another_host_is_judged_by_its_time(
    tmp_path: Path, env: dict[str, str]
) -> None:
    root = Path(EphemeralStore(env, str(tmp_path), os.getpid()).store("amd64").root)
    owner = root / "owner"
    owner.write_text(owner.read_text().replace('"machine":"', '"machine":"another '))
    assert ephemeral_store.remove_dead(env) == []
    hour_ago = time.time() - 3700
    os.utime(root, (hour_ago, hour_ago))
    assert [left.root for left in ephemeral_store.remove_dead(env)] == [str(root)]
    assert not root.exists()
    assert recorded(env) == []


def test_only_what_is_called_like_ours_is_removed(tmp_path: Path, env: dict[str, str]) -> None:
    os.makedirs(ephemeral_store.records(env))
    (tmp_path / "precious").mkdir()
    for name, target in (("0-a", tmp_path / "precious"), ("0-b", tmp_path / ".ce-void-gone")):
        os.symlink(target, f"{ephemeral_store.records(env)}/{name}")
    assert [left.root for left in ephemeral_store.remove_dead(env)] == [f"{tmp_path}/.ce-void-gone"]
    assert (tmp_path / "precious").is_dir()
    assert recorded(env) == ["0-a"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError) as caught:
        EphemeralStore(env, f"{tmp_path}/file/x", os.getpid()).store("amd64")
    assert caught.value.message == f"EDF_IMAGESTORE=void: '{tmp_path}/file/x': not a directory"
