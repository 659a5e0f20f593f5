"""A suite in parts: no test is lost, none runs twice."""

import tomllib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import names, part_of

FILES = st.dictionaries(st.text(min_size=1), st.integers(0, 50))
SLURM = Path(__file__).parents[1] / "slurm"


@given(FILES, st.integers(1, 4))
def test_each_file_is_in_one_part(files: dict[str, int], parts: int) -> None:
    chosen = [part_of(files, number, parts) for number in range(1, parts + 1)]
    assert set().union(*chosen) == set(files)
    assert sum(map(len, chosen)) == len(files)


@given(FILES)
def test_parts_differ_by_no_more_than_the_longest_file(files: dict[str, int]) -> None:
    one, other = (sum(files[path] for path in part_of(files, n, 2)) for n in (1, 2))
    assert abs(one - other) <= max(files.values(), default=0)


def test_a_line_of_the_core_selects_a_test_all_its_cases_or_its_file() -> None:
    file = "tests/slurm/test_exec.py"
    test = f"{file}::test_one"
    assert names(f"{test}[a b]") == {f"{test}[a b]", test, file}
    assert test not in names(f"{test}_more")
    lines = (SLURM.parent / "systems/core").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#") and line != line.strip()] == []


def test_the_seconds_on_record_are_those_of_files_that_exist() -> None:
    record = tomllib.loads((SLURM / "seconds.toml").read_text())
    assert set(record) <= {path.stem for path in SLURM.glob("test_*.py")}
    assert all(seconds > 0 for seconds in record.values())
