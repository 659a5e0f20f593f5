"""Interleaved measurements: A B C A B C …, so that a disturbance affects all alike."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Samples:
    """Repeated measurements of one thing, in seconds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    def minus(self, other: "Samples", divided_by: float = 1) -> "Samples":
        """Return the difference of each pair that was measured in the same round."""
        pairs = zip(self.values, other.values, strict=True)
        return Samples(tuple((a - b) / divided_by for a, b in pairs))


def interleave(ways: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Samples]:
    """Measure each way `rounds` times in turn, after one round that only warms caches."""
    for measure in ways.values():
        measure()
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, measure in ways.items():
            measured[name].append(measure())
    return {name: Samples(tuple(values)) for name, values in measured.items()}
