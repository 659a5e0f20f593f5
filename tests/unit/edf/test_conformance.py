"""Files in good/ render to the text beside them; files in bad/ are refused with that text.

The names begin with the section of the specification that they belong to.
"""

import os
from pathlib import Path

import pytest

from container_engine.edf.model import Loaded
from container_engine.edf.show import to_json, to_toml
from container_engine.submit.context import Context
from container_engine.submit.environment import load_effective
from tests.unit.edf.cases import CWD, DATA, ENV, write

GOOD = sorted((DATA / "good").glob("*.toml"))
BAD = sorted((DATA / "bad").glob("*.toml"))


class Engine:
    """`ce` for a user whose search path has the bases, on a site without files of its own."""

    def __init__(self, directory: Path) -> None:
        self._site = directory / "config.toml"
        self._site.write_text('edf_dir = "/nonexistent/etc/edf"\n')

    def load(self, path: Path, cwd: str = CWD) -> Loaded:
        env = ENV | {"EDF_PATH": str(DATA / "bases")}
        context = Context(env, cwd, os.geteuid(), "/nonexistent", 0, str(self._site))
        return load_effective(str(path), context)


def seen(loaded: Loaded, directory: Path) -> str:
    """Return the problems as `ce validate` prints them, without directories of this checkout."""
    said = "".join(problem.text for problem in loaded.problems)
    return said.replace(f"{directory}/", "").replace(f"{DATA}/", "DATA/")


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def stem(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", GOOD, ids=stem)
def test_a_good_file_means_what_stands_beside_it(path: Path, engine: Engine) -> None:
    loaded = engine.load(path)
    assert loaded.edf is not None, seen(loaded, path.parent)
    assert seen(loaded, path.parent) == ""
    rendered = to_json(loaded.edf).replace(str(path.parent), "DIRECTORY")
    assert rendered == path.with_suffix(".json").read_text()


@pytest.mark.parametrize("path", GOOD, ids=stem)
def test_a_rendered_file_renders_to_itself(path: Path, tmp_path: Path, engine: Engine) -> None:
    edf = engine.load(path).edf
    assert edf is not None
    rendered = to_toml(edf)
    again = engine.load(write(tmp_path, "again.toml", rendered), cwd="/elsewhere").edf
    assert again is not None
    assert to_toml(again) == rendered
    assert to_json(again) == to_json(edf)


@pytest.mark.parametrize("path", BAD, ids=stem)
def test_a_bad_file_gets_the_message_beside_it(path: Path, engine: Engine) -> None:
    assert seen(engine.load(path), path.parent) == path.with_suffix(".txt").read_text()


def test_every_bad_file_has_something_to_say() -> None:
    assert all(path.with_suffix(".txt").read_text() for path in BAD)


def test_no_expectation_is_left_over() -> None:
    expectations = {*(DATA / "good").glob("*.json"), *(DATA / "bad").glob("*.txt")}
    assert {path.with_suffix(".toml") for path in expectations} == {*GOOD, *BAD}
