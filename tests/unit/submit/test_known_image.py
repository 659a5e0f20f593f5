"""Files that an environment names and a host lacks: login host and node print the same text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from container_engine.submit.context import Context
from container_engine.submit.environment import load_effective
from container_engine.submit.known_image import missing_files
from tests.unit.node.plans import device, mount, plan, resolve_devices, resolve_mounts

if TYPE_CHECKING:
    from pathlib import Path

    from container_engine.base.errors import LaunchError


def on_node(**parts: object) -> list[LaunchError]:
    unmet: list[LaunchError] = []
    the_plan = plan(**parts)
    resolve_mounts(the_plan.mounts, {}, unmet)
    resolve_devices(the_plan.devices, the_plan.allowed_devices, {}, unmet)
    return unmet


@pytest.mark.parametrize(
    ("line", "parts", "text"),
    [
        (
            'mounts = ["/no/a"]',
            {"mounts": [mount("/no/a", "/no/a")]},
            "mount source '/no/a': does not exist",
        ),
        (
            'mounts = ["/no/i.sqsh:/i:sqsh"]',
            {"mounts": [mount("/no/i.sqsh", "/i", kind="squashfs")]},
            "mount source '/no/i.sqsh': does not exist",
        ),
        (
            'mounts = ["/dev/null/a:/a"]',
            {"mounts": [mount("/dev/null/a", "/a")]},
            "mount source '/dev/null/a': Not a directory",
        ),
        (
            'devices = ["/dev/no"]',
            {"devices": [device("/dev/no")]},
            "device '/dev/no': does not exist",
        ),
    ],
)
def test_a_missing_file_is_reported_as_on_a_node(
    tmp_path: Path, line: str, parts: dict[str, object], text: str
) -> None:
    file = tmp_path / "e.toml"
    file.write_text(f'image = "ubuntu:24.04"\n{line}\n')
    context = Context({"HOME": str(tmp_path)}, str(tmp_path), os.geteuid(), "/nonexistent", 0)
    edf = load_effective(str(file), context).edf
    assert edf is not None
    (here,) = missing_files(edf, context)
    (there,) = on_node(**parts)
    assert here.message == there.message.removeprefix(f"{there.where}: ") == text
    assert (here.hint, here.see) == (there.hint, there.see)


def test_an_image_that_may_be_missing_is_not_mounted_on_a_node_without_it() -> None:
    assert on_node(mounts=[mount("/no/i.sqsh", "/i", "nofail", kind="squashfs")]) == []
