"""A user's own files: made at once or not at all, and beyond the reach of other users."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.base.files import (
    created,
    forget_oldest,
    is_own_directory,
    make_own,
    own_directory,
    publish,
    publish_private,
    user_directory,
)


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


def test_a_directory_is_made_for_its_user_alone(tmp_path: Path) -> None:
    os.close(own_directory(str(tmp_path / "d")))
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    os.close(own_directory(str(tmp_path / "d")))


def test_nobody_else_writes_what_is_made_on_the_way_whatever_the_umask(tmp_path: Path) -> None:
    given = os.umask(0)
    try:
        make_own(str(tmp_path / "a/b/c"))
        make_own(str(tmp_path / "a/b/c"))
        publish_private(str(tmp_path / "d/e/f"), "name", b"text", 1)
    finally:
        os.umask(given)
    modes = {one: (tmp_path / one).stat().st_mode & 0o777 for one in ("a", "a/b", "a/b/c", "d")}
    assert modes == {"a": 0o755, "a/b": 0o755, "a/b/c": 0o700, "d": 0o700}
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_own(str(tmp_path / "file/x"))


def test_a_directory_of_another_user_is_not_written_to(
    tmp_path: Path, as_nobody: Callable[[Path], None]
) -> None:
    """Root could write to it, and an access control list may allow others to."""
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


def test_a_file_is_no_directory_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "f").touch(0o600)
    (tmp_path / "d").mkdir(0o700)
    assert not is_own_directory(str(tmp_path / "f"))
    assert is_own_directory(str(tmp_path / "d"))


def test_a_directory_that_is_replaced_while_a_file_is_written_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path may lead elsewhere by then; the name of the draft is chosen just before."""
    own, other = tmp_path / "own/answers", tmp_path / "other"
    own.mkdir(0o700, parents=True)
    own.parent.chmod(0o700)
    other.mkdir()

    def replaced(size: int) -> bytes:
        own.rename(tmp_path / "aside")
        own.symlink_to(other)
        return bytes(size)

    monkeypatch.setattr(os, "urandom", replaced)
    publish_private(str(own), "recorded", b"x", 1)
    assert list(other.iterdir()) == []
    assert (tmp_path / "aside/recorded").read_bytes() == b"x"


def test_only_the_newest_files_of_a_directory_are_kept(tmp_path: Path) -> None:
    for age in range(5):
        (tmp_path / f"{age}.log").touch()
        os.utime(tmp_path / f"{age}.log", (1000 - age, 1000 - age))
    (tmp_path / ".of another process").touch()
    (tmp_path / ".left").touch()
    os.utime(tmp_path / ".left", (1, 1))
    forget_oldest(str(tmp_path), 2)
    assert sorted(os.listdir(tmp_path)) == [".of another process", "0.log", "1.log"]


def test_drafts_of_many_processes_displace_no_file(tmp_path: Path) -> None:
    (tmp_path / "recorded").touch()
    for number in range(20):
        (tmp_path / f".other.{number}").touch()
    forget_oldest(str(tmp_path), 16)
    assert (tmp_path / "recorded").exists()


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"XDG_CACHE_HOME": "/cache", "HOME": "/home/me"}, "/cache"),
        ({"XDG_CACHE_HOME": "cache", "HOME": "/home/me"}, "/home/me/.cache"),
        ({"HOME": "/home/me"}, "/home/me/.cache"),
        ({"HOME": "me"}, ""),
        ({}, ""),
    ],
)
def test_a_users_directory_is_an_absolute_path_or_none(
    environment: dict[str, str], place: str
) -> None:
    assert user_directory("XDG_CACHE_HOME", ".cache", environment) == place
