"""Cost of each further task on a node."""

from collections.abc import Callable

from tests.bench.place import ENVIRONMENT
from tests.bench.results import Row, duration
from tests.bench.samples import Samples, interleave
from tests.bench.user import User

_COUNTS = (1, 16, 64)
_BUDGET_MS = 1


def measure(user: User, rounds: int) -> list[Row]:
    ways: dict[str, Callable[[], float]] = {}
    for count in _COUNTS:
        srun = ["srun", "-N1", f"-n{count}", "--cpu-bind=none"]
        ways[f"native {count}"] = _step(user, [*srun, "true"])
        ways[f"ours {count}"] = _step(user, [*srun, f"--environment={ENVIRONMENT}", "true"])
    measured = interleave(ways, rounds)
    more = {n: measured[f"ours {n}"].minus(measured[f"native {n}"]) for n in _COUNTS}
    rows = [
        duration(
            f"{count} task{'s' * (count > 1)} on a node, more than native",
            more[count],
            against=("native, as many tasks", measured[f"native {count}"]),
        )
        for count in _COUNTS
    ]
    return rows + [_each_further(count, more) for count in _COUNTS[1:]]


def _step(user: User, argv: list[str]) -> Callable[[], float]:
    return lambda: user.step(argv)


def _each_further(count: int, more: dict[int, Samples]) -> Row:
    each = more[count].minus(more[1], divided_by=count - 1)
    row = duration(f"each further task of {count}, more than native", each)
    return Row(**{**vars(row), "budget": _BUDGET_MS})
