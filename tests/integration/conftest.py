"""Fixtures of the tests with real Podman. They need root, to become ordinary users."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.installed import require_current
from tests.integration.engine import ALICE, ROOT, Engine, Person
from tests.integration.engine import person as who
from tests.integration.importing import Importing as User
from tests.integration.leftovers import Leftovers
from tests.integration.libraries import Place, place_in
from tests.integration.registry import Person as Importing
from tests.integration.registry import Registry, serving
from tests.integration.trees import Podman


@pytest.fixture(scope="session")
def prepared(alone: Path) -> Path:
    """Return the sandbox's directory, with users, machine settings and an engine; no cluster."""
    require_current(alone)
    done = subprocess.run(
        [str(ROOT / "sandbox" / "up"), "--prepare"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "CE_SANDBOX_DIR": str(alone)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return alone


def _engine(directory: Path, user: Person) -> Iterator[Engine]:
    scratch = Path(tempfile.mkdtemp(prefix="test-", dir=directory / "cache"))
    scratch.chmod(0o755)
    os.chown(scratch, user.uid, user.gid)
    before = Leftovers.of(user.uid)
    try:
        yield Engine(directory, directory / "prefix", scratch, user)
        before.check()
    finally:
        shutil.rmtree(scratch)


@pytest.fixture
def engine(prepared: Path) -> Iterator[Engine]:
    """Yield the engine as the sandbox's first user has it.

    After each test nothing of it may be left.
    """
    yield from _engine(prepared, who(ALICE))


@pytest.fixture
def hooks(engine: Engine) -> Iterator[Path]:
    """Yield a directory for OCI hooks and CDI files, owned by root, like all above it."""
    with tempfile.TemporaryDirectory(prefix="test-hooks-", dir=engine.dir / "cache") as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


@pytest.fixture
def stranger(prepared: Path) -> Iterator[Engine]:
    """Yield the engine of a user who has a number but no name on this machine."""
    home = Path(tempfile.mkdtemp(prefix="home-", dir=prepared / "cache"))
    os.chown(home, 61234, 61235)
    try:
        yield from _engine(prepared, Person(61234, 61235, (61235,), home))
    finally:
        shutil.rmtree(home)


@pytest.fixture(scope="session")
def registry(
    tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str], str]
) -> Iterator[Registry]:
    for tool in ("skopeo", "docker-registry", "mksquashfs", "unsquashfs", "zstd"):
        need_tool(tool)
    with serving(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def person(registry: Registry, tmp_path: Path) -> Importing:
    return Importing(registry, tmp_path / "store")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of three MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    (tmp_path / "small").mkdir()
    options = ["-t", "tmpfs", "-o", "size=3m", "tmpfs", str(tmp_path / "small")]
    subprocess.run(["mount", *options], check=True)
    yield tmp_path / "small"
    subprocess.run(["umount", str(tmp_path / "small")], check=True)


@pytest.fixture(scope="module")
def place(prepared: Path) -> Iterator[Place]:
    with place_in(prepared) as made:
        yield made


@pytest.fixture(scope="module")
def podman(need_tool: Callable[[str], str], registry: Registry) -> Iterator[Podman]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount what Podman has")
    need_tool("podman")
    # Short, since the longest path is below it.
    with tempfile.TemporaryDirectory(prefix="p", dir="/tmp") as place:
        text = f'[storage]\ndriver = "vfs"\ngraphroot = "{place}/r"\nrunroot = "{place}/n"\n'
        (Path(place) / "storage.conf").write_text(text)
        options = ["--root", f"{place}/r", "--runroot", f"{place}/n", "--storage-driver", "vfs"]
        env = {**registry.env, "CONTAINERS_STORAGE_CONF": f"{place}/storage.conf"}
        yield Podman(options, env)


@pytest.fixture(scope="module")
def server(prepared: Path) -> str:
    return str(prepared / "prefix/libexec/container-engine/ce-image")


@pytest.fixture
def me(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    need_tool: Callable[[str], str],
) -> User:
    for tool in ("mksquashfs", "unsquashfs", "skopeo"):
        need_tool(tool)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EDF_IMAGESTORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return User(tmp_path, capsys)
