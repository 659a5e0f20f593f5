"""The images of the user's own Podman, by its service and by its command line."""

import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from container_engine.base.errors import SiteError
from container_engine.tools import podman_storage
from tests.integration.leftovers import until

_NAME = "localhost/mine:1"


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return the environment of a user with one image in a storage of their own."""
    storage = tmp_path / "storage.conf"
    storage.write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/g"\nrunroot = "{tmp_path}/r"\n'
    )
    # `system reset` removes it, also below the Podman of a test that runs at the same time
    engine = tmp_path / "containers.conf"
    engine.write_text(f'[engine]\ntmp_dir = "{tmp_path}/t"\n')
    env = {
        "PATH": os.environ["PATH"],
        "CONTAINERS_CONF": str(engine),
        "HOME": str(tmp_path),
        "XDG_RUNTIME_DIR": str(tmp_path / "xdg"),
        "CONTAINERS_STORAGE_CONF": str(storage),
    }
    (tmp_path / "xdg").mkdir(mode=0o700)
    archive = tmp_path / "root.tar"
    with tarfile.open(archive, "w") as file:
        file.addfile(tarfile.TarInfo("empty"))
    subprocess.run(["podman", "import", "-q", str(archive), _NAME], env=env, check=True)
    yield env
    subprocess.run(["podman", "system", "reset", "--force"], env=env, check=False)


@pytest.fixture
def served(env: dict[str, str]) -> Iterator[dict[str, str]]:
    directory = Path(env["XDG_RUNTIME_DIR"]) / "podman"
    directory.mkdir()
    command = ["podman", "system", "service", "--time", "0", f"unix://{directory}/podman.sock"]
    with subprocess.Popen(command, env=env) as process:
        assert until((directory / "podman.sock").exists)
        yield env
        process.terminate()


def test_the_command_line_lists_what_there_is(env: dict[str, str]) -> None:
    (image,) = podman_storage.images(env, os.getuid())
    assert image.name == _NAME
    assert image.digest.startswith("sha256:")
    assert image.created > 1_700_000_000


def test_the_service_says_the_same(served: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    by_command = podman_storage.images(served | {"XDG_RUNTIME_DIR": "/nowhere"}, os.getuid())
    without_program = served | {"PATH": "/nowhere"}
    assert podman_storage.images(without_program, os.getuid()) == by_command
    # without podman-py, and so without an import of it, it is the command line
    monkeypatch.setitem(sys.modules, "podman", None)
    assert podman_storage.images(served, os.getuid()) == by_command
    with pytest.raises(SiteError):
        podman_storage.images(without_program, os.getuid())


def test_a_service_that_does_not_answer_is_no_fault(env: dict[str, str]) -> None:
    left = Path(env["XDG_RUNTIME_DIR"]) / "podman"
    left.mkdir()
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"{left}/podman.sock")
    assert podman_storage.service(env, os.getuid()) == f"unix://{left}/podman.sock"
    assert [image.name for image in podman_storage.images(env, os.getuid())] == [_NAME]
