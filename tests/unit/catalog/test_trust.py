"""A catalog that a user other than root can change is refused, with the path at fault."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.catalog.sites import SMALLEST, Site


def test_a_file_that_others_may_write_is_refused(site: Site) -> None:
    site.hook("h").chmod(0o664)
    assert site.faults() == ["h/hook.toml: others than its owner may write it"]


def test_another_file_of_the_hook_that_others_may_write_is_refused(site: Site) -> None:
    program = site.hook("h").with_name("program")
    program.touch()
    program.chmod(0o777)
    assert site.faults() == ["h/program: others than its owner may write it"]


def test_a_directory_of_a_hook_that_others_may_write_is_refused(site: Site) -> None:
    site.hook("h").parent.chmod(0o775)
    assert site.faults() == ["h: others than its owner may write it"]


def test_a_sticky_directory_of_hooks_is_refused(site: Site) -> None:
    """Other users can add hooks to it, although they cannot replace root's."""
    site.hook("h")
    site.own.chmod(0o1777)
    assert site.faults() == [f"{site.own}: others than its owner may write it"]


def test_a_parent_directory_that_others_may_write_is_refused(site: Site) -> None:
    site.hook("h")
    site.own.parent.chmod(0o777)
    assert f"{site.own.parent}: others than its owner may write it" in site.faults()


@pytest.mark.parametrize("what", ["hook.toml", ".", "..", "../.."])
def test_what_somebody_else_owns_is_refused(
    site: Site, what: str, as_nobody: Callable[[Path], None]
) -> None:
    path = (site.hook("h").parent / what).resolve()
    as_nobody(path)
    shown = str(path).removeprefix(f"{site.own}/")
    assert f"{shown}: owned by user 65534, not by root" in site.faults()


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_link_out_of_the_directory_is_refused(site: Site, tmp_path: Path, what: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "hook.toml").write_text(SMALLEST)
    if what == "file":
        (site.own / "h").mkdir()
        (site.own / "h/hook.toml").symlink_to(outside / "hook.toml")
    else:
        (site.own / "h").symlink_to(outside)
    (fault,) = site.faults()
    assert f"is a symbolic link out of {site.own}" in fault
    assert fault.startswith("h/hook.toml: " if what == "file" else "h: ")


def test_a_link_into_a_directory_whose_name_begins_alike_is_refused(site: Site) -> None:
    sibling = site.own.with_name(f"{site.own.name}-of-others")
    sibling.mkdir()
    (sibling / "hook.toml").write_text(SMALLEST)
    (site.own / "h").mkdir()
    (site.own / "h/hook.toml").symlink_to(sibling / "hook.toml")
    (fault,) = site.faults()
    assert fault.startswith(f"h/hook.toml: is a symbolic link out of {site.own}, to ")


def test_a_link_within_the_directory_is_followed(site: Site) -> None:
    site.hook("h").rename(site.own / "h/h.toml")
    (site.own / "h/hook.toml").symlink_to("h.toml")
    assert site.faults() == []


def test_a_pipe_in_the_place_of_a_hook_is_refused_and_not_waited_for(site: Site) -> None:
    import os

    (site.own / "h").mkdir()
    os.mkfifo(site.own / "h/hook.toml")
    assert site.faults() == ["h/hook.toml: is neither a file nor a directory"]
