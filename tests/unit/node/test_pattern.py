"""File name patterns without glob."""

import fnmatch
import glob
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container_engine.node.pattern import expand, matches

NAMES = st.text("ab1.", max_size=6)
PATTERNS = st.lists(
    st.sampled_from(["a", "b", "1", ".", "*", "?", "[ab]", "[!a]", "[0-9]", "[a-b1]"]), max_size=6
).map("".join)


@given(NAMES, PATTERNS)
def test_a_pattern_matches_what_it_matches_for_everybody_else(name: str, pattern: str) -> None:
    assert matches(name, pattern) == fnmatch.fnmatchcase(name, pattern)


def test_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        (tmp_path / f"cxi{number}").touch()
    names = [Path(path).name for path in expand(f"{tmp_path}/cxi*")]
    assert names == ["cxi0", "cxi2", "cxi10"]


@pytest.mark.parametrize(
    "pattern", ["*/lib/x.so*", "a/*/*", "?/lib", ".*", "*", "none*/x", "a/lib"]
)
def test_directories_are_looked_through_as_glob_does(tmp_path: Path, pattern: str) -> None:
    for name in ("a/lib/x.so.1", "a/lib/y.so", "b/lib/x.so", ".hidden/lib/x.so", "c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    wanted = sorted(glob.glob(f"{tmp_path}/{pattern}"))
    assert sorted(expand(f"{tmp_path}/{pattern}")) == wanted


def test_a_path_without_wildcards_is_itself_if_it_exists(tmp_path: Path) -> None:
    assert expand(str(tmp_path)) == [str(tmp_path)]
    assert expand(f"{tmp_path}/none") == []
