"""Stages for the programs that start or join containers."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.node.join_stage import Stage


@pytest.fixture
def stage(tmp_path: Path, ce_node: Path) -> Iterator[Stage]:
    # a door's path must be short
    with tempfile.TemporaryDirectory(prefix="j", dir="/tmp") as directory:
        made = Stage(Path(directory), tmp_path, ce_node)
        with made.running():
            yield made


@pytest.fixture
def own(tmp_path: Path, ce_node: Path) -> Stage:
    return Stage.of_one_step(tmp_path, ce_node)
