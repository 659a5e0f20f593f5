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


def test_a_first_plan_imports_nothing_that_fetches_images() -> None:
    wanted = "container_engine.cli.main, container_engine.submit.prepare"
    program = f"import sys, {wanted}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    loaded = set(done.stdout.decode().split())
    assert "container_engine.submit.prepare" in loaded
    fetching = {"container_engine.images.fetch.importing", "container_engine.images.scanning"}
    assert not loaded & {*fetching, "socket", "subprocess", "tempfile", "threading", "traceback"}


def test_to_recall_a_plan_imports_neither_the_models_nor_what_starts_programs_slowly() -> None:
    loaded = imported_by("container_engine.submit.recall")
    assert not loaded & {"container_engine.submit.prepare", "msgspec", "subprocess", "json"}
