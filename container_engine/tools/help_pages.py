"""The documentation pages of an installation as text for a terminal, and a search in them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from container_engine.base.text_layout import wrap
from container_engine.faults.catalogue import FAULTS

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


# Directories of pages, as they are installed and in docs.
DIRECTORIES = {
    "errors": "guide/errors",
    "topics": "guide/topics",
    "howto": "howto",
    "quickstart": "quickstart",
    "guide": "guide",
    "admin": "admin",
}
# Failures of other programs, which have no error code: a page for each in docs/guide/topics.
TOPICS = {
    "host-libraries": "libraries and packages of your shell's modules in place of the image's",
    "mpi": "ranks that do not find one another, a PMIx that does not fit",
    "pyxis": "the options --container-… and what each of them does here",
}
_DOCS = os.path.join(os.path.dirname(__file__), "../../docs")
_WORD = re.compile(r"[\w+]+")
# What people search for below a heading, which is not in it.
_WORDS = r"(?:\n<!-- words: (.*) -->)?"
_TITLE = re.compile(rf"# (.+){_WORDS}")
_HEADING = re.compile(rf"^##+ (.+){_WORDS}$", re.MULTILINE)
# Words that say nothing about what is wanted.
_EMPTY = (
    "a an and are at be can cannot do does for from get how i in is it job my not of on one or"
    "\nout so that the there this to what when where which why with you your"
)
_MOST = 7
# Pages for administrators weigh less than others.
_ADMIN, _ADMIN_WEIGHT = "admin", 0.5
# lists of all errors, which have every word
_LISTS = ("errors", "troubleshooting", "tickets")


class Page(NamedTuple):
    """A page, with its first heading, or for an error its cause, as the title.

    `words` are others that people search it by.
    """

    name: str
    title: str
    text: str
    kind: str = ""
    words: str = ""


def files(prefix: str, taken: Container[str]) -> dict[str, tuple[str, str]]:
    """Return kind and path of all pages by name, with its directory where that name is taken."""
    found: dict[str, tuple[str, str]] = {}
    for kind, source in DIRECTORIES.items():
        directory = os.path.join(_DOCS, source)
        if not os.path.isdir(directory):
            directory = f"{prefix}/share/container-engine/{kind}"
        for file in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
            name, suffix = os.path.splitext(file)
            if suffix == ".md":
                called = f"{kind}/{name}" if name in found or name in taken else name
                found[called] = (kind, os.path.join(directory, file))
    return found


def read(prefix: str, taken: Container[str]) -> dict[str, Page]:
    """Return all pages by the names that `files` gives them."""
    return {name: _page(name, *place) for name, place in files(prefix, taken).items()}


def _page(name: str, kind: str, path: str) -> Page:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    code = os.path.splitext(os.path.basename(path))[0]
    head = _TITLE.match(text)
    title, words = head.groups("") if head else ("", "")
    title = FAULTS[code].what if kind == "errors" and code in FAULTS else title
    return Page(name, title, text, kind, words)


def search(words: str, pages: dict[str, Page]) -> list[Page]:
    """Return the pages that are about the words, the best first.

    They are the pages with all of the words, else those with most, but at least half of them. A
    word also matches the beginning of a longer one.
    """
    empty = _words(_EMPTY)
    wanted = [word for word in _words(words) if word not in empty] or _words(words)
    found = []
    for page in pages.values():
        title, text = _words(f"{page.name} {page.title} {page.words}"), _words(page.text)
        met = [word for word in wanted if any(one.startswith(word) for one in text + title)]
        if met:
            score = sum(_score(word, title, text) for word in met)
            score += _heading_score(wanted, page.text, empty)
            score *= 0.3 if page.name in _LISTS else 1.0
            score *= _ADMIN_WEIGHT if page.kind == _ADMIN else 1.0
            found.append((len(met), score, page))
    most = max((number for number, _score, _page in found), default=0)
    best = sorted((one for one in found if one[0] == most), key=lambda one: -one[1])
    return [page for _number, _score, page in best[:_MOST]] if 2 * most >= len(wanted) else []


def _score(word: str, title: list[str], text: list[str]) -> float:
    in_title = sum(one.startswith(word) for one in title)
    # a long page about everything has each word now and then
    often = sum(one.startswith(word) for one in text) / (100 + len(text))
    return 10 * in_title + 100 * often


def _heading_score(wanted: list[str], text: str, empty: list[str]) -> float:
    """Return the score of the best heading with all the words; other words in it lower it."""
    best = 0.0
    for heading in _HEADING.findall(text):
        own = [word for word in _words(" ".join(heading)) if word not in empty]
        if all(any(one.startswith(word) for one in own) for word in wanted):
            best = max(best, 30 * len(wanted) / max(len(own), 1))
    return best


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
