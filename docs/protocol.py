"""`make generated`: write node/protocol.py, the places of values, from the C programs' header."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "spank_plugin/common/protocol.h"
TARGET = ROOT / "container_engine/node/protocol.py"
_HEAD = '''"""Name the places of what programs pass to each other by position, letters and limits.

Generated from spank_plugin/common/protocol.h, which explains them, by `make generated`.
"""

'''
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_MACRO = re.compile(r'^#define (\w+) (?:"(.)"|(\d+))$', re.MULTILINE)
_ENUM = re.compile(r"\benum(?: \w+)? \{(.*?)\}", re.DOTALL)


def render() -> str:
    """Return the module's text."""
    known = constants(HEADER.read_text(encoding="utf-8"))
    return _HEAD + "".join(f"{name} = {_written(value)}\n" for name, value in known.items())


def constants(header: str) -> dict[str, int | str]:
    """Return a header's enumerators, and its macros of one character or a number."""
    text = _COMMENT.sub("", header)
    found: dict[str, int | str] = {
        name: letter or int(number) for name, letter, number in _MACRO.findall(text)
    }
    for body in _ENUM.findall(text):
        following = 0
        for item in filter(None, map(str.strip, body.split(","))):
            name, _equals, given = item.partition(" = ")
            value = found[name] = _value(given, found) if given else following
            following = value + 1 if isinstance(value, int) else 0
    return found


def _value(text: str, known: dict[str, int | str]) -> int | str:
    if text in known:
        return known[text]
    return text[1] if text.startswith("'") else int(text)


def _written(value: int | str) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
