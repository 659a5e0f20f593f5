"""Each key of an EDF is kept, explained, rendered, documented, and does something."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from container_engine.edf.document import KEYS, PLAIN, Document
from container_engine.edf.layer import Layer
from container_engine.edf.load import Setting, load
from container_engine.edf.model import Edf
from container_engine.edf.show import histories, to_json, to_toml, toml_string

ROOT = Path(__file__).parents[3]
ENGINE = ROOT / "container_engine"
PAGE = (ROOT / "docs/guide/edf.md").read_text(encoding="utf-8")
# it says which files there are, and no value is left of it
OWN = tuple(key for key in KEYS if key != "base_environment")
VARIABLES = {"HOME": "/home/alice", "SCRATCH": "/scratch"}


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_string(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _example(key: str) -> str:
    """Return a line with the key's own example."""
    examples = Document.model_fields[key].examples
    assert examples, f"{key}: no example in edf/document.py"
    return f"{key} = {_toml(examples[0])}\n"


@pytest.mark.parametrize("key", OWN)
def test_a_key_is_kept_explained_and_rendered(key: str, tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(_example(key), encoding="utf-8")
    (tmp_path / "own.toml").write_text('base_environment = "./base.toml"\n', encoding="utf-8")
    setting = Setting(VARIABLES, str(tmp_path), lambda name: name.startswith("image:"))
    loaded, files = load(f"{tmp_path}/own.toml", setting)
    assert loaded.edf is not None, loaded.problems
    assert key in json.loads(to_json(loaded.edf))
    assert re.search(rf"^\[*{key}\b", to_toml(loaded.edf), re.MULTILINE)
    found = [one for one in histories(loaded.edf, files) if re.match(rf"{key}\b", one.key)]
    assert [one.effective.origin.file for one in found[:1]] == [f"{tmp_path}/base.toml"]


@pytest.mark.parametrize("key", PLAIN)
def test_a_key_with_one_value_has_its_fields(key: str) -> None:
    assert key in KEYS
    assert key in {field.name for field in dataclasses.fields(Layer)}
    assert {key, f"{key}_origin"} <= {field.name for field in dataclasses.fields(Edf)}


@pytest.mark.parametrize("key", OWN)
def test_a_key_has_an_effect(key: str) -> None:
    """Something outside of `edf/` reads it."""
    readers = [
        path
        for path in ENGINE.rglob("*.py")
        if path.parent != ENGINE / "edf"
        and re.search(rf"\bedf\.{key}\b", path.read_text(encoding="utf-8"))
    ]
    assert readers, f"{key} is accepted and does nothing"


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_in_the_example_of_all_keys(key: str) -> None:
    example = PAGE.partition("# ~/.edf/all.toml\n")[2].partition("```")[0]
    assert re.search(rf"^\[*{key}\b", example, re.MULTILINE), f"docs/guide/edf.md: no {key}"
