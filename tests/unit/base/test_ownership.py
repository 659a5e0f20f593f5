"""A file that others than its trusted owners can change is refused, with the remedy."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.base.files import distrust, owner_fault, owner_fault_above

ROOT = frozenset([0])


def test_a_file_of_a_trusted_owner_that_nobody_else_may_write_is_accepted(tmp_path: Path) -> None:
    assert owner_fault("/f", tmp_path.stat(), {os.getuid()}) is None


def test_another_owner_is_refused_with_the_one_it_needs(tmp_path: Path) -> None:
    assert owner_fault("/f", tmp_path.stat(), {12345}) == (
        "/f",
        f"owned by user {os.getuid()}, not by root",
        "chown root /f",
    )
    found = owner_fault("/f", tmp_path.stat(), {12345}, owner="you")
    assert found is not None
    assert found[1] == f"owned by user {os.getuid()}, not by you"


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o602, 0o720])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    assert owner_fault("/f", tmp_path.stat(), {os.getuid()}) == (
        "/f",
        "others than its owner may write it",
        "chmod go-w /f",
    )


def test_a_sticky_directory_is_safe_only_above_a_file(tmp_path: Path) -> None:
    place = tmp_path / "sticky"
    place.mkdir()
    place.chmod(0o1777)
    (place / "file").touch(0o644)
    owners = {os.getuid(), 0}
    assert owner_fault_above(str(place / "file"), owners) is None
    assert owner_fault(str(place), place.stat(), owners) is not None
    place.chmod(0o777)
    assert owner_fault_above(str(place / "file"), owners) == owner_fault(
        str(place), place.stat(), owners
    )


def test_every_directory_above_a_file_counts(tmp_path: Path) -> None:
    place = tmp_path / "open/closed/closed"
    place.mkdir(parents=True)
    owners = {os.getuid(), 0}
    assert owner_fault_above(str(place / "file"), owners) is None
    (tmp_path / "open").chmod(0o777)
    found = owner_fault_above(str(place / "file"), owners)
    assert found is not None
    assert found[0] == str(tmp_path / "open")


def test_a_symlink_is_judged_by_its_target_and_the_directories_above_that(
    tmp_path: Path, as_nobody: Callable[[Path], None]
) -> None:
    target, link = tmp_path / "real/target", tmp_path / "link"
    target.parent.mkdir()
    target.touch(0o644)
    link.symlink_to(target)
    assert distrust(str(link)) is None
    target.parent.chmod(0o777)
    assert (distrust(str(link)) or ("",))[0] == str(target.parent)
    as_nobody(target)
    assert (distrust(str(link)) or ("",))[0] == str(link)
