"""Rank the pages of the documentation as the search of the site does.

The site (mkdocs-material 9) searches in the browser: its worker gives each section of each page to
lunr, with a thousandfold weight for titles and none for the length of a text. It looks for every
word of the query that docs/site.js leaves in it as the beginning of a word, prefers pages to their
sections, and sections that have more of the words; pages of the project weigh less
(docs/weights.py). This is the same in Python, over the Markdown sources, without mkdocs and Node.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from docs.weights import weight

_FENCE = re.compile(r"^ *```\w*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#{1,6}) (.*)$", re.MULTILINE)
# words that a page is searched by, as docs/build_site.py hides them in the heading above them
_WORDS = re.compile(r"\n<!-- words: (.*) -->$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_RULE_OF_TABLE = re.compile(r"^\|[-|: ]+\|$", re.MULTILINE)
_IMAGE = re.compile(r"!\[[^]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_ADMONITION = re.compile(r'^!!! \w+(?: "(.*)")?$', re.MULTILINE)
# Code and the border of a cell end a word; bold and emphasis are only removed.
_BORDER = re.compile(r"[`|]")
_EMPHASIS = re.compile(r"\*\*|(?<!\w)\*|\*(?!\w)")
_MKDOCS = Path(__file__).parents[1] / "docs/mkdocs.yml"
# the one setting of this file that is needed
_SEPARATOR = re.compile(re.search(r"separator: '(.*)'", _MKDOCS.read_text())[1])  # type: ignore[index]
_TITLE_BOOST = 1000.0
_K1 = 1.2
# The stop words of lunr, which the index lacks and the site takes out of a question.
_SCRIPT = (_MKDOCS.parent / "site.js").read_text(encoding="utf-8")
_STOP_WORDS = frozenset(
    re.search(r"STOP_WORDS = new Set\(`(.*?)`", _SCRIPT, re.DOTALL)[1].split()  # type: ignore[index]
)

_ENDING = re.compile(re.search(r"ENDING = /(.*)/;", _SCRIPT)[1])  # type: ignore[index]


class Section(NamedTuple):
    page: str
    is_article: bool
    title: Counter[str]
    text: Counter[str]


class Index:
    def __init__(self, pages: Mapping[str, str]) -> None:
        self._sections = [part for page, text in pages.items() for part in sections(page, text)]
        # for each word, the titles and texts that have it: (section, boost, how often)
        self._found: dict[str, list[tuple[int, float, int]]] = defaultdict(list)
        for number, section in enumerate(self._sections):
            for field, boost in ((section.title, _TITLE_BOOST), (section.text, 1.0)):
                for word, count in field.items():
                    self._found[word].append((number, boost, count))

    def search(self, query: str) -> list[str]:
        """Return the pages that have any of the words, the best first."""
        words = query.lower().split()
        asked = [word for word in words if word not in _STOP_WORDS] or words
        begun = " ".join(_ENDING.sub(r"\1", word) for word in asked)
        wanted = [word for word in _SEPARATOR.split(begun) if word]
        scores: dict[int, float] = defaultdict(float)
        met: dict[int, set[str]] = defaultdict(set)
        for term in wanted:
            for word in (word for word in self._found if word.startswith(term)):
                for number, boost, count in self._found[word]:
                    often = (_K1 + 1) * count / (_K1 + count)
                    scores[number] += boost * self._rarity(word) * often
                    met[number].add(term)
        best: dict[str, float] = {}
        for number, score in scores.items():
            section = self._sections[number]
            asked_for = met[number] | {term for term in wanted if term not in _STOP_WORDS}
            bonus = section.is_article + len(met[number]) / len(asked_for)
            whole = weight(section.page) * score * (1 + bonus**2)
            best[section.page] = max(whole, best.get(section.page, 0.0))
        return sorted(best, key=lambda page: -best[page])

    def _rarity(self, word: str) -> float:
        number, found = len(self._sections), len(self._found[word])
        return math.log(1 + abs((number - found + 0.5) / (found + 0.5)))


def sections(page: str, text: str) -> Iterator[Section]:
    """Yield the part below each heading, the first as the article."""
    # a comment in a code block is no heading
    masked = _FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    found = list(_HEADING.finditer(masked))
    ends = [heading.start() for heading in found[1:]] + [len(text)]
    for heading, end in zip(found, ends, strict=True):
        hidden = _WORDS.match(text, heading.end())
        title = f"{heading[2]} {hidden[1] if hidden else ''}"
        body = text[heading.end() : end]
        yield Section(page, heading is found[0], _words(title), _words(body))


def _words(markdown: str) -> Counter[str]:
    text = _FENCE.sub(r"\1", _COMMENT.sub(" ", markdown))
    text = _LINK.sub(r"\1", _IMAGE.sub(" ", _RULE_OF_TABLE.sub(" ", text)))
    text = _EMPHASIS.sub("", _BORDER.sub(" ", _ADMONITION.sub(r"\1", text))).lower()
    return Counter(word for word in _SEPARATOR.split(text) if word and word not in _STOP_WORDS)
