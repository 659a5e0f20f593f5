"""Tell mounted files that are virtual environments from others, by what is at their top."""

import pytest

from container_engine.submit.prepare import prepare
from tests.unit import squashfs
from tests.unit.plan.conftest import User


@pytest.mark.parametrize(
    ("file", "is_one"),
    [
        ("pyvenv.cfg", True),
        ("conda-meta/history", True),
        ("below/pyvenv.cfg", False),
        ("data", False),
    ],
)
def test_a_mounted_file_is_one_if_it_has_the_mark_at_its_top(
    user: User, file: str, *, is_one: bool
) -> None:
    packed = squashfs.make(user.home / "v.sqsh", {file: "x", "other": ""})
    user.write(user.first / "v.toml", f'mounts = ["{packed}:/v:sqsh"]')
    # without an installation, one that is found is not compared
    said = prepare("v", user.context()).notices
    assert (
        "the virtual environment /v is compared with the image only at launch" in said
    ) == is_one
