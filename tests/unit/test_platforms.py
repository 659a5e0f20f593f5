"""The table of platforms has the columns of the line `versions` that test runs print."""

import re
import subprocess
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_COLUMNS = ["Slurm", "Podman", "crun", "cgroups", "architecture", "file system", "system", "date"]


def _rows() -> list[list[str]]:
    text = (_ROOT / "docs/admin/platforms.md").read_text()
    section = text.partition("## What was run with what")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_has_the_columns_that_a_run_prints() -> None:
    done = subprocess.run([_ROOT / "tests/systems/versions"], capture_output=True, text=True)
    name, *columns = (cell.strip() for cell in done.stdout.strip().split("|"))
    assert (name, len(columns)) == ("versions", len(_COLUMNS))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", columns[-1])
    assert _rows()[0] == [*_COLUMNS, "run", "result"]


def test_each_row_has_a_date_a_run_and_a_result() -> None:
    for row in _rows()[2:]:
        assert len(row) == len(_COLUMNS) + 2
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row[len(_COLUMNS) - 1]), row
        assert all(row), row
