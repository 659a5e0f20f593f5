"""Finds the lines of faults in configuration files.

The files are read again for this, so that only a launch with a fault pays for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from container_engine.base.errors import SiteError, UserError
from container_engine.base.toml_positions import find_positions

if TYPE_CHECKING:
    from container_engine.base.toml_positions import Fault

_UNKNOWN = re.compile(r"unknown key '([^']+)'")
_OF_TOML = re.compile(r"\(at line (\d+), column")
_INDEX = re.compile(r"(.*)\[(\d+)\]$")


class FaultsError(SiteError):
    """Files of the site with `faults`; the message has all of them, with their lines."""

    def __init__(self, faults: Sequence[Fault], origins: Mapping[str, str]) -> None:
        self.faults = tuple(faults)
        hint = next((fault.hint for fault in faults if fault.hint), None)
        text = "; ".join(located(fault, origins) for fault in faults)
        super().__init__(text, hint, "site-configuration")


def located(fault: Fault, origins: Mapping[str, str]) -> str:
    """Return the fault in one line that begins with FILE:LINE, or with FILE if none is known.

    `origins` are those of the `Configuration`.
    """
    number = line_of(fault, origins)
    if not number:
        return str(fault)
    message = _OF_TOML.sub("(at column", fault.message)
    return str(fault._replace(file=f"{fault.file}:{number}", message=message))


def line_of(fault: Fault, origins: Mapping[str, str]) -> int:
    """Return the line of the fault's key, or 0 if none is known."""
    is_merged = origins.get(fault.key) == fault.file
    key = _in_its_file(fault.key, origins) if is_merged else fault.key
    return _line(fault.file, key, fault.message)


def _line(file: str, key: str, message: str) -> int:
    """Return the line of a key, as faults name it, or 0 if none is known.

    An unknown key is named by the `message` instead. Items of arrays are counted within the file.
    """
    if (of_toml := _OF_TOML.search(message)) is not None:
        return int(of_toml[1])
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


def _in_its_file(key: str, origins: Mapping[str, str]) -> str:
    """Return a key with its index in its own file: mounts[0] for mounts[2] if it is the first."""
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
