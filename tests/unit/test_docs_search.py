"""The words that people type into the search of the documentation find the page they need."""

import tomllib
from pathlib import Path

from docs.reference import pages
from tests.site_search import Index

ROOT = Path(__file__).parents[2]


def test_what_people_type_finds_its_page_among_the_first_three() -> None:
    written = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    written += [ROOT / "hooks/README.md", ROOT / "spank_plugin/README.md"]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in written}
    index = Index(texts | pages())
    searches = tomllib.loads((ROOT / "tests/data/searches.toml").read_text(encoding="utf-8"))
    found = {words: index.search(words)[:3] for page in searches for words in searches[page]}
    wanted = {words: f"docs/{page}.md" for page in searches for words in searches[page]}
    assert {
        words: (wanted[words], found[words]) for words in found if wanted[words] not in found[words]
    } == {}


def test_a_word_behind_a_bracket_a_quote_or_a_slash_is_found() -> None:
    index = Index({"a.md": '# One\n\nA (zebra), "lions" and /etc/tigers.\n', "b.md": "# Two\n"})
    assert [index.search(word) for word in ("zebra", "lion", "tigers")] == [["a.md"]] * 3


def test_a_page_whose_title_has_the_word_comes_first() -> None:
    index = Index({"a.md": "# Shells\n\nA zebra.\n", "b.md": "# Zebras\n\nStripes.\n"})
    assert index.search("zebra") == ["b.md", "a.md"]


def test_a_word_of_a_code_block_is_found_and_its_comment_is_no_heading() -> None:
    index = Index({"a.md": "# One\n\n```sh\n# zebra\n```\n", "b.md": "# Two\n"})
    assert index.search("zebra") == ["a.md"]
