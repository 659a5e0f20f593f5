"""Removal of directories: what is mounted in them stays."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from container_engine.base.mounts import remove_tree


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory below a tree on which another one, with a file, is mounted."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter").touch()
    place = tmp_path / "tree/a name \\ of/place"
    place.mkdir(parents=True)
    subprocess.run(["mount", "--bind", tmp_path / "home", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
@pytest.mark.parametrize("name", ["tree", "link"])
def test_a_tree_in_which_something_is_mounted_stays(tmp_path: Path, bound: Path, name: str) -> None:
    (tmp_path / "link").symlink_to("tree")
    with pytest.raises(OSError, match="busy") as error:
        remove_tree(str(tmp_path / name))
    assert error.value.errno == errno.EBUSY
    assert error.value.filename == str(bound)
    assert (tmp_path / "home/letter").exists()


def test_what_its_owner_may_not_read_goes_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "tree/deep/er").mkdir(parents=True)
    (tmp_path / "other").mkdir(mode=0o755)
    (tmp_path / "tree/link").symlink_to(tmp_path / "other")
    for name in ("tree/deep/er", "tree/deep", "tree"):
        (tmp_path / name).chmod(0)
    remove_tree(str(tmp_path / "tree"))
    assert os.listdir(tmp_path) == ["other"]
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o755
