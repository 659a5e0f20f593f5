"""The image's files, read from outside as the container will see them, and nothing else."""

import os
from pathlib import Path

import pytest

from container_engine.node.libraries.trees import ImageTree, Links


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "usr/lib/deep").mkdir(parents=True)
    (root / "etc").mkdir()
    (root / "usr/lib/libx.so.1.2").write_text("x")
    (tmp_path / "outside").write_text("secret")
    links = {
        "lib": "usr/lib",
        "usr/lib/libx.so.1": "libx.so.1.2",
        "usr/lib/deep/far": "../libx.so.1",
        "usr/lib/absolute": "/lib/libx.so.1",
        "usr/lib/host": f"{tmp_path}/outside",
        "usr/lib/up": "../../../../../outside",
        "usr/lib/round": "about",
        "usr/lib/about": "round",
        "etc/cache": "../../../outside",
        "etc/node": str(tmp_path),
        "proc": "/proc",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    return root


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("/", "/"),
        ("/lib/libx.so.1", "/usr/lib/libx.so.1.2"),
        ("/lib/deep/far", "/usr/lib/libx.so.1.2"),
        ("/lib/absolute", "/usr/lib/libx.so.1.2"),
        ("/lib/none/libx", "/usr/lib/none/libx"),
        ("/lib/up", "/outside"),
        ("/../../lib/../x", "/usr/x"),
        ("/lib/round", "/lib/round"),
    ],
)
def test_links_lead_where_they_lead_in_the_container(root: Path, path: str, real: str) -> None:
    assert ImageTree(str(root)).real(path) == real


@pytest.mark.parametrize(
    "path", ["/lib/host", "/lib/up", "/etc/node/outside", "/proc/self/status", "/lib/round", "/x\0"]
)
def test_no_path_leads_out(root: Path, path: str) -> None:
    tree = ImageTree(str(root))
    with pytest.raises(OSError, match=r"No such file|Too many|Invalid"):
        tree.open(path)
    assert tree.content(path, 1000) == b""


def test_files_are_read_within_bounds_and_nothing_is_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")
    tree = ImageTree(str(root))
    assert tree.content("/lib/libx.so.1", 1) == b"x"
    assert tree.content("/lib/libx.so.1", 0) == b""
    assert tree.content("/pipe", 10) == b""
    assert tree.content("/lib", 10) == b""


def test_directories_are_listed_and_links_to_nowhere_exist(root: Path) -> None:
    tree = ImageTree(str(root))
    assert "libx.so.1.2" in tree.names("/lib")
    assert tree.names("/") == os.listdir(root)
    there = [path for path in ("/", "/lib/up", "/lib/deep", "/lib/x", "/x/y") if tree.has(path)]
    assert there == ["/", "/lib/up", "/lib/deep"]


def test_what_is_written_stays_below_the_root(root: Path) -> None:
    tree = ImageTree(str(root))
    tree.replace("/etc/cache", b"new")
    tree.replace("/lib/round", b"new")
    tree.replace("/etc/node/deep/file", b"new")
    assert (root.parent / "outside").read_text() == "secret"
    assert (root / "usr/lib/round").read_bytes() == b"new"
    assert (root / "outside").read_text() == "new"
    assert (root / str(root.parent).lstrip("/") / "deep/file").read_text() == "new"
    with pytest.raises(OSError, match=r"/usr/lib/libx.so.1.2"):
        tree.replace("/lib/libx.so.1/x", b"new")


def test_more_directories_than_may_be_open_are_read(root: Path) -> None:
    for number in range(300):
        (root / f"d{number}").mkdir()
        (root / f"d{number}/file").write_text("x")
    tree = ImageTree(str(root))
    before = len(os.listdir("/proc/self/fd"))
    assert all(tree.content(f"/d{number}/file", 9) == b"x" for number in range(300))
    assert len(os.listdir("/proc/self/fd")) - before < 200


def test_a_file_is_removed_where_links_lead_inside_the_image(root: Path) -> None:
    tree = ImageTree(str(root))
    tree.remove("/usr/lib/absolute")
    assert not (root / "usr/lib/libx.so.1.2").exists()
    for path in ("/usr/lib/host", "/usr/lib/up", "/etc/cache"):
        with pytest.raises(OSError, match="No such file"):
            tree.remove(path)
    assert (root.parent / "outside").read_text() == "secret"


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
