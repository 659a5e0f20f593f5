"""Imports of programs that must start quickly."""

import subprocess
import sys

import pytest

from tests.unit.edf.cases import DATA

ROOT = DATA.parents[2]


def imported_by(module: str) -> set[str]:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-ISc", program], stdout=subprocess.PIPE, check=True)
    return set(done.stdout.decode().split())


@pytest.mark.parametrize("module", ["errors", "deferred", "ownership"])
def test_what_nodes_share_with_the_submit_host_imports_nothing_slow(module: str) -> None:
    slow = {"re", "typing", "dataclasses", "pathlib", "enum", "functools", "collections", "json"}
    assert not imported_by(f"container_engine.{module}") & slow
