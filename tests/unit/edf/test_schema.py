"""The checked-in schema agrees with the model and the documentation."""

import json

import pytest

from container_engine.edf.document import KEYS, Document
from container_engine.edf.schema import MODELS
from container_engine.schemas import render
from tests.unit.edf.cases import DATA

CHECKED_IN = DATA.parents[2] / "edf_schemas"


@pytest.mark.parametrize("name", MODELS)
def test_the_schema_is_not_stale(name: str) -> None:
    text = (CHECKED_IN / name).read_text(encoding="utf-8")
    assert text == render(MODELS[name]), "run python -m container_engine.edf.schema"


def test_every_key_says_what_it_is_and_since_when() -> None:
    properties = json.loads(render(Document))["properties"]
    assert set(properties) == set(KEYS)
    for key, schema in properties.items():
        assert schema["description"], key
        assert schema["since"], key


def test_every_example_in_the_schema_is_valid() -> None:
    for key, schema in json.loads(render(Document))["properties"].items():
        for example in schema.get("examples", []):
            Document.model_validate({key: example})
