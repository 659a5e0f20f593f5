"""Atomic creation of files, even where another user may write beside them."""

import os
from pathlib import Path

import pytest

from container_engine.base.files import created, publish


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep")
    (tmp_path / "ref.json").symlink_to(precious)
    publish(str(tmp_path / "ref.json"), b"new")
    assert precious.read_text() == "keep"
    assert not (tmp_path / "ref.json").is_symlink()
    assert (tmp_path / "ref.json").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["precious", "ref.json"]


def test_no_file_is_made_where_there_is_one_or_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("keep")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("there", "link"):
        with pytest.raises(FileExistsError):
            created(str(tmp_path / name))
    assert sorted(os.listdir(tmp_path)) == ["link", "there"]


def test_a_draft_has_a_name_that_nobody_can_know(tmp_path: Path) -> None:
    """Otherwise a prepared symlink could make the write overwrite another file of the user."""
    seen = set()

    for _ in range(2):
        directory = tmp_path / "full"
        directory.mkdir(exist_ok=True)
        target = directory / "x"
        target.mkdir(exist_ok=True)  # the last step then fails and names the draft
        with pytest.raises(IsADirectoryError) as failure:
            publish(str(target), b"new")
        seen.add(failure.value.filename)
        assert os.listdir(directory) == ["x"]
    assert len(seen) == 2
