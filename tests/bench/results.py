"""Results of measurements: rows for a table and for `build/bench.json`."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.samples import Samples


@dataclass(frozen=True)
class Row:
    """One figure.

    `ratio` is `value` divided by what `against` names, measured in the same run. `budget` is the
    maximum of the ratio if there is one, and else of the value.
    """

    metric: str
    value: float
    unit: str
    against: str | None = None
    ratio: float | None = None
    budget: float | None = None
    min: float | None = None
    max: float | None = None
    n: int = 1

    @property
    def verdict(self) -> str:
        """The share of the budget that is used; empty without a budget."""
        if self.budget is None:
            return ""
        share = (self.value if self.ratio is None else self.ratio) / self.budget
        if share > 1:
            return f"missed by {100 * (share - 1):.0f} %"
        return f"kept, {100 * max(share, 0):.0f} % used"


def duration(
    metric: str,
    samples: Samples,
    *,
    against: tuple[str, Samples] | None = None,
    budget: float | None = None,
) -> Row:
    """Return a row in milliseconds."""
    return Row(
        metric,
        round(1000 * samples.median, 3),
        "ms",
        against[0] if against else None,
        round(samples.median / against[1].median, 3) if against else None,
        budget,
        round(1000 * min(samples.values), 3),
        round(1000 * max(samples.values), 3),
        len(samples.values),
    )


def write(rows: Sequence[Row], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if abs(value) < 10 and value != int(value) else f"{value:.0f}"


def table(rows: Sequence[Row]) -> str:
    """Format rows as aligned columns, one line for each row."""
    lines = [("", "median", "min", "max", "", "ratio", "to", "budget", "")]
    lines += [
        (
            row.metric,
            _number(row.value),
            _number(row.min),
            _number(row.max),
            row.unit,
            _number(row.ratio),
            row.against or "",
            _number(row.budget),
            row.verdict,
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(9)]
    words = {0, 4, 6, 8}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
