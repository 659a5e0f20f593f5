"""A container that is saved at its end: where its image is made."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from container_engine.base.errors import LaunchError
from container_engine.node.start.saving import at_the_end, target


def wanted(path: Path | str, **node: str) -> str:
    usual = {"SLURMD_NODENAME": "n7", "SLURM_STEP_NUM_NODES": "1"}
    return target(str(path), "--container-save", {**usual, **node})


def test_several_nodes_have_an_image_each(tmp_path: Path) -> None:
    assert wanted(tmp_path / "x.sqsh") == f"{tmp_path}/x.sqsh"
    assert wanted(tmp_path / "x-%N", SLURM_STEP_NUM_NODES="2") == f"{tmp_path}/x-n7"
    with pytest.raises(LaunchError, match=r"--container-save: 2 nodes would write the same image"):
        wanted(tmp_path / "x", SLURM_STEP_NUM_NODES="2")


@pytest.mark.parametrize("pattern", ["%j", "%A_%a", "%N-%t"])
def test_patterns_that_only_slurm_replaces_are_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(LaunchError, match=f"/{pattern}.sqsh' would stay as it is: only %N is"):
        wanted(tmp_path / f"{pattern}.sqsh")
    assert wanted(tmp_path / "100%.sqsh") == f"{tmp_path}/100%.sqsh"


def test_a_place_without_a_file_is_refused_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="is a directory"):
        wanted(tmp_path)
    with pytest.raises(LaunchError, match="/no' does not exist on node n7"):
        wanted(tmp_path / "no/x.sqsh")
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match="/file' is not a directory on node n7"):
        wanted(tmp_path / "file/x.sqsh")


@pytest.fixture
def roots() -> Iterator[Path]:
    """Yield a directory of root's that everybody may enter, unlike those above `tmp_path`."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_directory_that_the_user_cannot_write_to_is_refused_before_the_start(
    roots: Path,
) -> None:
    if (child := os.fork()) == 0:
        code = 1
        try:
            os.setresuid(61_001, 61_001, 61_001)
            with pytest.raises(LaunchError, match=f"you cannot write to '{roots}'"):
                wanted(roots / "x.sqsh")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert wanted(roots / "x.sqsh") == f"{roots}/x.sqsh"


@pytest.fixture
def common() -> Iterator[Path]:
    """Yield a directory like /tmp, in which this process is an ordinary user."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o1777)
        os.seteuid(61_001)
        try:
            yield Path(directory)
        finally:
            os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of other users")
@pytest.mark.parametrize("suffix", ["", ".json", ".sha256"])
def test_a_file_of_another_user_is_refused_before_the_start_where_it_cannot_be_replaced(
    common: Path, suffix: str
) -> None:
    path = common / f"x.sqsh{suffix}"
    path.touch()
    assert wanted(common / "x.sqsh") == f"{common}/x.sqsh"
    path.unlink()
    os.seteuid(0)
    path.symlink_to("elsewhere")
    os.seteuid(61_001)
    with pytest.raises(LaunchError, match=f"'{path}' belongs to another user"):
        wanted(common / "x.sqsh")
    os.seteuid(0)
    os.chown(common, 61_001, 61_001)
    os.seteuid(61_001)
    assert wanted(common / "x.sqsh") == f"{common}/x.sqsh"
    os.seteuid(0)
    os.chown(common, 0, 0)
    common.chmod(0o777)
    os.seteuid(61_001)
    assert wanted(common / "x.sqsh") == f"{common}/x.sqsh"


def test_nothing_is_saved_if_the_plugin_says_so_before_the_tasks_end(tmp_path: Path) -> None:
    (tmp_path / "x.sqsh").write_text("before")
    plugin, launcher = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with plugin, launcher, open("/proc/self/ns/mnt", "rb") as namespace:
        plugin.send(b"d")
        plugin.shutdown(socket.SHUT_WR)
        at_the_end(launcher, str(tmp_path / "x.sqsh"), namespace.fileno(), {}, str(tmp_path))
        said = plugin.recv(1024).decode()
    assert said.startswith("F--container-save: nothing was saved: a task was ended by SIGTERM")
    assert (tmp_path / "x.sqsh").read_text() == "before"
