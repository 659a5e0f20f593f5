"""Compares two effective EDFs: lists values that only one of them has. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from container_engine.base.secrecy import Secrecy
from container_engine.edf.model import Edf
from container_engine.edf.show import displayed, quoted, values


class Difference(NamedTuple):
    """A value that only the first (`-`) or the second has (`+`), or that `was` another (`~`).

    `~` without values is an array in another order.
    """

    sign: str
    key: str
    value: str = ""
    origin: str = ""
    was: str = ""

    def __str__(self) -> str:
        if self.sign == "~" and not self.was:
            return f"~ {self.key}: the same entries in another order"
        value = f"{self.was} -> {self.value}" if self.was else self.value
        return f"{self.sign} {self.key} = {value}  # {self.origin}".removesuffix("  # ")


class Value(NamedTuple):
    """A value with its origin. `shown` is compared; `displayed` is printed, with secrets hidden."""

    shown: str
    displayed: str
    origin: str


def differences(one: Edf, other: Edf, secrecy: Secrecy) -> list[Difference]:
    """Return the differences sorted by key; equal EDFs have none.

    An array whose items differ only in order has one, because the order is significant.
    """
    before, after = _values(one, secrecy), _values(other, secrecy)
    found: list[Difference] = []
    for key in sorted({*before, *after}):
        found += compared(key, before.get(key, ()), after.get(key, ()))
    return found


def compared(key: str, mine: Sequence[Value], others: Sequence[Value]) -> list[Difference]:
    left, right = [value.shown for value in mine], [value.shown for value in others]
    if left == right:
        return []
    removed = [Difference("-", key, *value[1:]) for value in mine if value.shown not in right]
    added = [Difference("+", key, *value[1:]) for value in others if value.shown not in left]
    return [*removed, *added] or [Difference("~", key)]


def _values(edf: Edf, secrecy: Secrecy) -> dict[str, list[Value]]:
    """Return the values by key; items of arrays share their array's key."""
    found: dict[str, list[Value]] = {}
    for key, (table, _name), value, origin in values(edf):
        shared = key if table in {"annotations", "env"} else table
        printed = displayed(key[4:] if table == "env" else "", value, secrecy)
        found.setdefault(shared, []).append(Value(quoted(value), printed, str(origin)))
    if edf.writable_origin is None:
        shown = quoted(edf.writable)
        found["writable"] = [Value(shown, shown, "default")]
    return found
