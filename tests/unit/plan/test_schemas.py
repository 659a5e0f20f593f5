"""The checked-in schemas agree with the models."""

from pathlib import Path

import pytest

from container_engine.plan import node_types
from container_engine.plan.schema import MODELS
from container_engine.schemas import render, write

CHECKED_IN = Path(__file__).parents[3] / "edf_schemas"


@pytest.mark.parametrize("name", MODELS)
def test_the_schema_is_not_stale(name: str) -> None:
    stale = "run: python -m container_engine.plan.schema"
    assert (CHECKED_IN / name).read_text(encoding="utf-8") == render(MODELS[name]), stale


def test_the_types_of_the_plan_on_nodes_are_not_stale() -> None:
    stale = "run: python -m container_engine.plan.node_types"
    assert node_types.TARGET.read_text(encoding="utf-8") == node_types.render(), stale


def test_the_schemas_are_written_into_the_directory_that_is_named(tmp_path: Path) -> None:
    write(MODELS, [str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", "config.json"}
