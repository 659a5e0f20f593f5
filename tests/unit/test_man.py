"""The manual page and `ce --help` say the same."""

import re
from pathlib import Path

import pytest

from container_engine.cli.main import main
from container_engine.cli.verbs import VERBS

PAGE = Path(__file__).parents[2] / "docs" / "man" / "ce.1"
OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)")


def sections() -> dict[str, str]:
    """The text of the page by verb, "" for what is not about one of them."""
    text = PAGE.read_text(encoding="utf-8").replace("\\-", "-")
    text = re.sub(r"^\.(?:B|I|BR|BI|IR|RB|RI)\s+|\\f[BIR]", "", text, flags=re.MULTILINE)
    parts = re.split(r"^\.SS (?:ce )?([\w-]+).*$|^\.SH .*$", text, flags=re.MULTILINE)
    found: dict[str, str] = {}
    for verb, part in zip(["", *parts[1::2]], parts[0::2], strict=True):
        found[verb or ""] = found.get(verb or "", "") + part
    return found


def help_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The lines of the help that begin with an option, without what they say about it."""
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    return "\n".join(re.findall(r"^ +(-.*?)(?:  |$)", capsys.readouterr().out, re.MULTILINE))


def options(text: str) -> set[str]:
    return set(OPTION.findall(text)) - {"-h", "--help"}


def test_the_page_has_a_section_for_each_verb_and_no_other() -> None:
    assert set(sections()) - {""} == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_the_page_and_the_help_know_the_same_options(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert options(sections()[verb]) == options(help_of([verb], capsys))


def test_the_page_knows_the_options_of_ce_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert options(help_of([], capsys)) <= options(sections()[""])
