"""Renders a Markdown page as text for a terminal. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from container_engine.base.text_layout import wrap

_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)*([^)#]*?)(?:\.md)?(?:#[^)]*)?\)")
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)\n?")
_NOTE = re.compile(r'!!! \w+ "(.*)"')
_ITEM = re.compile(r"(?:[-*]|\d+\.) +")
_CELL = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"\|[-|: ]+\|?")


class _Block(NamedTuple):
    """Lines of one kind that belong together, and the number of the block that they are in."""

    kind: str
    number: int
    line: str


def plain(
    text: str, columns: int | None = None, named: Callable[[str], str] = lambda _target: ""
) -> str:
    """Return a page without markup, wrapped to `columns`; None keeps the lines of paragraphs.

    `named` returns the name for `ce help` of a page that a link leads to, "" if it has none.
    """
    text = _IMAGE.sub("", text)
    linked = _LINK.sub(lambda found: _link(found, named), text)
    lines: list[str] = []
    for (kind, _number), blocks in groupby(_blocks(linked), key=lambda block: block[:2]):
        lines += _rendered(kind, [block.line for block in blocks], columns)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def _link(found: re.Match[str], named: Callable[[str], str]) -> str:
    """Return what a link says, with the command that prints the page that it leads to."""
    words, target = found[1], found[2]
    if not target:
        return words
    name = named(target)
    return f"{words} (ce help {name})" if name else f"{words} ({target})"


def _blocks(text: str) -> Iterator[_Block]:
    number, in_code = 0, False
    for line in text.splitlines():
        if line.startswith("<!--"):
            continue
        if line.lstrip().startswith("```"):
            in_code = not in_code
            number += 1
        elif in_code:
            yield _Block("code", number, line)
        elif (note := _NOTE.fullmatch(line)) is not None:
            yield _Block("prose", number, f"{note[1]}:")
        elif line.startswith("|"):
            yield _Block("table", number, line)
        else:
            # a title, a blank line and an item of a list begin a new block
            number += not line.strip() or line.startswith("#") or bool(_ITEM.match(line))
            yield _Block("prose", number, line)
            number += line.startswith("#")


def _rendered(kind: str, lines: Sequence[str], columns: int | None) -> Iterator[str]:
    if kind == "code":
        yield from (f"    {line}".rstrip() for line in lines)
    elif kind == "table":
        yield from _table(lines, columns)
    else:
        yield from _prose(lines, columns)


def _prose(lines: Sequence[str], columns: int | None) -> Iterator[str]:
    clear = [line.replace("**", "") for line in lines]
    clear = [line.lstrip("#").strip() if line.startswith("#") else line for line in clear]
    if columns is None:
        yield from clear
        return
    if not clear[0].strip():
        yield ""
        clear = clear[1:]
    whole = " ".join(line.strip() for line in clear)
    item = _ITEM.match(whole)
    yield from wrap(whole, columns, item.end() if item else 0) if whole else ()


def _table(lines: Sequence[str], columns: int | None) -> Iterator[str]:
    """Yield each row as its first cell, and the others below it with their titles.

    The cells are too long for columns on a terminal.
    """
    rows = [[c.strip().replace("\\|", "|") for c in _CELL.split(line)[1:-1]] for line in lines]
    titles = rows[0]
    for row, line in zip(rows[1:], lines[1:], strict=True):
        if _RULE.fullmatch(line):
            continue
        yield from wrap(row[0].replace("**", ""), columns, 0)
        for title, cell in zip(titles[1:], row[1:], strict=False):
            head = f"    {title}: " if title else "    "
            yield from wrap(f"{head}{cell.replace('**', '')}", columns, len(head))
        yield ""
