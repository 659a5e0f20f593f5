"""`python -m tests.bench.readme`: puts the figures of build/bench.json into the README's table."""

import json
import sys
from pathlib import Path

from tests.bench.results import Row

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- bench:begin -->\n", "<!-- bench:end -->"
HEAD = "| figure | median (min to max) | against | ratio | budget |\n|---|---|---|---|---|\n"


def _number(value: float) -> str:
    return f"{value:.2f}" if value != int(value) and abs(value) < 10 else f"{value:.0f}"


def line(row: Row) -> str:
    """One row of the table."""
    value = f"{_number(row.value)} {row.unit}"
    if row.min is not None and row.max is not None:
        value += f" ({_number(row.min)} to {_number(row.max)})"
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
    budget = f"{row.budget:g}: {row.verdict.partition(',')[0]}" if row.budget is not None else ""
    return f"| {row.metric.strip()} | {value} | {row.against or ''} | {ratio} | {budget} |\n"


def filled(page: str, rows: list[Row]) -> str:
    """The page with the table anew; the words after the table stay."""
    before, begin, rest = page.partition(BEGIN)
    table, blank, words = rest.partition("\n\n")
    if not begin or not blank or END not in words or not table.startswith("|"):
        raise ValueError("the README has no table of figures")
    # rows that say what a row above consists of have no place here
    kept = [row for row in rows if not row.metric.startswith("  ")]
    return before + begin + HEAD + "".join(map(line, kept)).rstrip("\n") + blank + words


def main() -> int:
    rows = [Row(**entry) for entry in json.loads((ROOT / "build/bench.json").read_text())]
    page = ROOT / "README.md"
    page.write_text(filled(page.read_text(encoding="utf-8"), rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
