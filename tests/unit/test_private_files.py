"""A user's own files, which other users cannot put in place of theirs."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.private_files import own_directory


def test_a_directory_is_made_for_its_user_alone(tmp_path: Path) -> None:
    os.close(own_directory(str(tmp_path / "d")))
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    os.close(own_directory(str(tmp_path / "d")))


def test_a_directory_of_another_user_is_not_written_to(
    tmp_path: Path, as_nobody: Callable[[Path], None]
) -> None:
    """Root could; and an access control list may let others."""
    (tmp_path / "d").mkdir(0o700)
    as_nobody(tmp_path / "d")
    with pytest.raises(PermissionError, match="is not this user's alone"):
        own_directory(str(tmp_path / "d"))


@pytest.mark.parametrize("mode", [0o710, 0o702])
def test_a_directory_of_others_too_is_not_written_to(tmp_path: Path, mode: int) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(mode)
    with pytest.raises(PermissionError, match="is not this user's alone"):
        own_directory(str(tmp_path / "d"))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(0o700)
    (tmp_path / "link").symlink_to("d")
    with pytest.raises(OSError, match="Not a directory"):
        own_directory(str(tmp_path / "link"))
