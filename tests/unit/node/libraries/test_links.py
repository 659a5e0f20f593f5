"""Resolution of paths: the same result as Python's own, with fewer system calls."""

import os
from pathlib import Path

import pytest

from container_engine.node.libraries.trees import Links


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "usr/lib/deep").mkdir(parents=True)
    (root / "usr/lib/libx.so.1.2").write_text("")
    links = {
        "lib": "usr/lib",
        "usr/lib/libx.so.1": "libx.so.1.2",
        "usr/lib/libx.so": "libx.so.1",
        "usr/lib/up": "..",
        "usr/lib/deep/far": "../libx.so",
        "usr/lib/absolute": f"{root}/lib/libx.so",
        "usr/lib/gone": "nowhere",
        "usr/lib/round": "about",
        "usr/lib/about": "round",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    return root


@pytest.mark.parametrize(
    "name",
    [
        *("lib/libx.so", "lib/libx.so.1.2", "usr/lib/deep/far", "lib/deep/../libx.so", "lib/up"),
        *("lib/absolute", "lib/gone", "lib/round", "lib/none/libx.so", "lib/up/lib/libx.so", "lib"),
    ],
)
def test_a_path_leads_where_python_says(tree: Path, name: str) -> None:
    links = Links()
    for _ in range(2):
        assert links.real(f"{tree}/{name}") == os.path.realpath(f"{tree}/{name}")


@pytest.mark.parametrize("path", ["/", "/etc", "/etc/", "/etc/..", "//etc/passwd"])
def test_the_root_and_what_is_in_it_are_no_exception(path: str) -> None:
    assert Links().real(path) == os.path.realpath(path)
