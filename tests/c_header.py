"""Read constants from a header in C, for tests that compare Python with it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

SPANK_PLUGIN = Path(__file__).parents[1] / "spank_plugin"
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_LETTER = re.compile(r'^#define (\w+) "(.)"$', re.MULTILINE)
_ENUM = re.compile(r"\benum(?: \w+)? \{(.*?)\}", re.DOTALL)

T = TypeVar("T")


def constants(path: str) -> dict[str, int]:
    """Return the enumerators of a header below spank_plugin/, and its macros of one character."""
    text = _COMMENT.sub("", (SPANK_PLUGIN / path).read_text(encoding="utf-8"))
    found = {name: ord(letter) for name, letter in _LETTER.findall(text)}
    for body in _ENUM.findall(text):
        following = 0
        for item in filter(None, map(str.strip, body.split(","))):
            name, _equals, given = item.partition(" = ")
            found[name] = _value(given, found) if given else following
            following = found[name] + 1
    return found


def in_order(values: Mapping[str, T], known: Mapping[str, int]) -> list[T]:
    """Return the values in the order of their names, which must be the first ones of an enum."""
    ordered = sorted(values, key=known.__getitem__)
    assert [known[name] for name in ordered] == list(range(len(values))), values
    return [values[name] for name in ordered]


def _value(text: str, known: Mapping[str, int]) -> int:
    if text in known:
        return known[text]
    return ord(text[1]) if text.startswith("'") else int(text)
