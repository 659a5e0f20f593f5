import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2]


@pytest.fixture(scope="session", autouse=True)
def _directories_above_keep_their_modes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail if a test changed the mode of a directory above its own, maybe somebody's home."""
    above = tmp_path_factory.getbasetemp().parents
    before = {path: path.stat().st_mode for path in above}
    yield
    assert {path: path.stat().st_mode for path in above} == before


@pytest.fixture(scope="session")
def ce_start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program that prints cached plans, and starts Python for all others."""
    return _built(tmp_path_factory.mktemp("build"), "ce-start")


@pytest.fixture(scope="session")
def ce_guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program that starts steps, with a guard of the tests' (join_stage.py)."""
    return _built(tmp_path_factory.mktemp("build"), "fake_guard")


@pytest.fixture(scope="session")
def ce_user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program that prints the names of the user on this node."""
    return _built(tmp_path_factory.mktemp("build"), "ce-user")


@pytest.fixture(scope="session")
def ce_init(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the first process of a container, which writes what start-up steps have changed."""
    return _built(tmp_path_factory.mktemp("build"), "ce-init")


def _built(build: Path, name: str) -> Path:
    program = build / name
    make = ["make", "-s", "-C", str(SOURCES / "spank_plugin"), f"BUILD={build}", str(program)]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL, timeout=300)
    return program


@pytest.fixture
def as_nobody() -> Callable[[Path], None]:
    """Return a function that gives a file to another user; skip the test without root."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    return lambda path: os.chown(path, 65534, 65534)
