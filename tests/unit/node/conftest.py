"""Stages for the programs that start or join containers."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.node.join_stage import PACKAGE, PYTHON, Stage
from tests.unit.node.start_stage import StartStage


@pytest.fixture
def stage(tmp_path: Path, ce_guard: Path) -> Iterator[Stage]:
    # a socket's path must be short
    with tempfile.TemporaryDirectory(prefix="j", dir="/tmp") as directory:
        made = Stage(Path(directory), tmp_path, ce_guard)
        with made.running():
            yield made


@pytest.fixture
def own(tmp_path: Path, ce_guard: Path) -> Stage:
    return Stage.of_one_step(tmp_path, ce_guard)


@pytest.fixture(scope="session")
def package() -> Iterator[Path]:
    """Yield a directory that every user can read, with the package and its compiled modules."""
    with tempfile.TemporaryDirectory(prefix="p", dir="/tmp") as directory:
        copy = Path(directory) / "container_engine"
        shutil.copytree(PACKAGE / copy.name, copy, ignore=shutil.ignore_patterns("__pycache__"))
        # git gives files the modes that the umask allowed when it wrote them
        subprocess.run(["chmod", "-R", "u=rwX,go=rX", copy], check=True)
        subprocess.run([PYTHON, "-ISE", "-m", "compileall", "-q", copy], check=True)
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture
def starts(ce_guard: Path, ce_user: Path, package: Path) -> Iterator[StartStage]:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    # the directories that pytest makes are root's alone
    place = Path(tempfile.mkdtemp(prefix="s", dir="/tmp"))
    yield StartStage.of_user(place, (ce_guard, ce_user), package)
    for _ in range(100):  # a guard may still be writing there
        shutil.rmtree(place, ignore_errors=True)
        if not place.exists():
            break
        time.sleep(0.05)
    assert not place.exists()
