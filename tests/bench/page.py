"""`python -m tests.bench.page bench|bench-images|bench-reading …`: put figures onto pages.

Only the named benches are written: an older file of figures would overwrite newer ones from another
machine.
"""

import sys
from pathlib import Path

from tests.bench.results import Made, Row, read

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- {}:begin -->\n", "<!-- {}:end -->"
MEASURED = "Measured on "
# A file of figures below build, which is also the name of the table, and the page that shows it.
TABLES = (
    ("bench", "docs/benchmarks.md"),
    ("bench-images", "docs/benchmarks.md"),
    ("bench-reading", "docs/benchmarks.md"),
    ("bench-first-import", "docs/benchmarks.md"),
)
HEAD = (
    "| figure | median (min to max) | of | against | ratio | budget |\n|---|---|---|---|---|---|\n"
)


def _number(value: float) -> str:
    return f"{value:.2f}" if value != int(value) and abs(value) < 10 else f"{value:.0f}"


def line(row: Row) -> str:
    """Return one row of the table."""
    value = f"{_number(row.value)} {row.unit}"
    if row.min is not None and row.max is not None:
        value += f" ({_number(row.min)} to {_number(row.max)})"
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
    budget = f"{row.budget:g}: {row.verdict.partition(',')[0]}" if row.budget is not None else ""
    cells = (row.metric.strip(), value, str(row.n), row.against or "", ratio, budget)
    return f"| {' | '.join(cells)} |\n"


def filled(page: str, name: str, made: Made, rows: list[Row]) -> str:
    """Return the page with a new table and its origin; the text after them is kept.

    Raise ValueError if the page has no such table.
    """
    before, begin, rest = page.partition(BEGIN.format(name))
    table, blank, words = rest.partition("\n\n")
    if not begin or not blank or END.format(name) not in words or not table.startswith("|"):
        raise ValueError(f"the page has no table of figures '{name}'")
    if words.startswith(MEASURED):
        _origin, _blank, words = words.partition("\n\n")
    made_now = HEAD + "".join(map(line, rows)).rstrip("\n")
    return f"{before}{begin}{made_now}{blank}{made}{blank}{words}"


def main(names: list[str]) -> int:
    known = {name for name, _page in TABLES}
    if not names or not known.issuperset(names):
        print(f"usage: python -m tests.bench.page {'|'.join(sorted(known))} ...", file=sys.stderr)
        return 2
    for name, shown in TABLES:
        if name not in names:
            continue
        figures, page = ROOT / f"build/{name}.json", ROOT / shown
        made, rows = read(figures)
        # Indented rows, which break down the row above, are left out.
        kept = [row for row in rows if row.metric[0] != " "]
        page.write_text(
            filled(page.read_text(encoding="utf-8"), name, made, kept), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
