"""Read constants from a header in C, for tests that compare Python with it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from docs import protocol

SPANK_PLUGIN = Path(__file__).parents[1] / "spank_plugin"

T = TypeVar("T")


def constants(path: str) -> dict[str, int]:
    """Return the numbers and letters of a header below spank_plugin/."""
    found = protocol.constants((SPANK_PLUGIN / path).read_text(encoding="utf-8"))
    return {name: ord(one) if isinstance(one, str) else one for name, one in found.items()}


def in_order(values: Mapping[str, T], known: Mapping[str, int]) -> list[T]:
    """Return the values in the order of their names, which must be the first ones of an enum."""
    ordered = sorted(values, key=known.__getitem__)
    assert [known[name] for name in ordered] == list(range(len(values))), values
    return [values[name] for name in ordered]
