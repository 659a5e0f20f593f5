"""CI's selections of cluster tests name tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_ID = re.compile(r"(tests/[\w/]+\.py)::(\w+)")


@pytest.mark.parametrize("place", ["core", "debian-inside", "../sanitizers/run"])
def test_a_chosen_test_is_there(place: str) -> None:
    chosen = _ID.findall((ROOT / "tests/systems" / place).read_text())
    assert chosen
    for file, name in chosen:
        assert f"def {name}(" in (ROOT / file).read_text(), f"{file}::{name}"
