"""Finds the line of a key in a configuration file, after a fault was found there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from container_engine.edf.positions import find_positions
from container_engine.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNKNOWN = re.compile(r"unknown key '([^']+)'")
_INDEX = re.compile(r"(.*)\[(\d+)\]$")


def line_of(file: str, key: str, message: str = "") -> int:
    """Return the line of a key, as faults name it, or 0 if none is known.

    An unknown key is named by the `message` instead. Items of arrays are counted within the file.
    """
    unknown = _UNKNOWN.match(message)
    key = key or (unknown[1] if unknown else "")
    if not key:
        return 0
    try:
        with open(file, encoding="utf-8") as opened:
            positions = find_positions(opened.read())
    except (OSError, ValueError, UserError):
        return 0
    return positions.line(_path(key))


def in_its_file(key: str, origins: Mapping[str, str]) -> str:
    """Return mounts[0] for mounts[2] if the file of that item has none before it."""
    found = _INDEX.match(key)
    if found is None or key not in origins:
        return key
    name, number = found[1], int(found[2])
    before = sum(origins.get(f"{name}[{i}]") == origins[key] for i in range(number))
    return f"{name}[{before}]"


def _path(key: str) -> tuple[str | int, ...]:
    index = _INDEX.match(key)
    if index is not None:
        return (*_path(index[1]), int(index[2]))
    # the name of a variable may have dots, the names of keys have none
    head, dot, rest = key.partition(".")
    return (head, rest) if dot else (head,)
