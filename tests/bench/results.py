"""Results of measurements: rows for a table and for `build/bench.json`."""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.samples import Samples

ROOT = Path(__file__).parents[2]


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


@dataclass(frozen=True)
class Made:
    """Origin of figures: time, source tree, host and the programs that were measured."""

    when: str
    commit: str
    processors: int
    load: float
    programs: str

    def __str__(self) -> str:
        host = f"{self.processors} processors, load {self.load:.1f}"
        return f"Measured on {self.when}, of commit {self.commit}; {host}; {self.programs}."


def made() -> Made:
    """Return the origin of figures that are measured now."""
    commit = _said("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*")
    versions = (_said(*argv) for argv in (("srun", "-V"), ("podman", "-v"), ("crun", "-v")))
    programs = ", ".join(version for version in versions if version)
    now = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    load = round(os.getloadavg()[0], 1)
    return Made(now, commit or "unknown", os.cpu_count() or 0, load, programs)


def _said(*argv: str) -> str:
    """Return the first line that a program prints, "" if there is no such program."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return ""
    return done.stdout.partition("\n")[0].strip()


def write(rows: Sequence[Row], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    content = {"made": asdict(made()), "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(content, indent=1) + "\n")


def read(path: Path) -> tuple[Made, list[Row]]:
    content = json.loads(path.read_text())
    return Made(**content["made"]), [Row(**entry) for entry in content["rows"]]


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
