"""Files in good/ render to the text beside them, those in bad/ are refused with theirs.

The names begin with the section of the specification that they belong to.
"""

from pathlib import Path

import pytest

from container_engine.edf.render import to_json, to_toml
from tests.unit.edf.cases import DATA, load_edf, seen, write

GOOD = sorted((DATA / "good").glob("*.toml"))
BAD = sorted((DATA / "bad").glob("*.toml"))


def stem(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", GOOD, ids=stem)
def test_a_good_file_means_what_stands_beside_it(path: Path) -> None:
    loaded = load_edf(path)
    assert loaded.edf is not None, seen(loaded, path.parent)
    assert seen(loaded, path.parent) == ""
    rendered = to_json(loaded.edf).replace(str(path.parent), "DIRECTORY")
    assert rendered == path.with_suffix(".json").read_text()


@pytest.mark.parametrize("path", GOOD, ids=stem)
def test_a_rendered_file_renders_to_itself(path: Path, tmp_path: Path) -> None:
    edf = load_edf(path).edf
    assert edf is not None
    rendered = to_toml(edf)
    again = load_edf(write(tmp_path, "again.toml", rendered), cwd="/elsewhere").edf
    assert again is not None
    assert to_toml(again) == rendered
    assert to_json(again) == to_json(edf)


@pytest.mark.parametrize("path", BAD, ids=stem)
def test_a_bad_file_gets_the_message_beside_it(path: Path) -> None:
    assert seen(load_edf(path), path.parent) == path.with_suffix(".txt").read_text()


def test_every_bad_file_has_something_to_say() -> None:
    assert all(path.with_suffix(".txt").read_text() for path in BAD)


def test_no_expectation_is_left_over() -> None:
    expectations = {*(DATA / "good").glob("*.json"), *(DATA / "bad").glob("*.txt")}
    assert {path.with_suffix(".toml") for path in expectations} == {*GOOD, *BAD}
