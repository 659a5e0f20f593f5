"""The manual pages, `ce --help` and the models agree."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.cli.command_line.verb_table import verbs
from container_engine.cli.main import main
from container_engine.edf.document import KEYS
from container_engine.site.model import Policy, SiteConfig
from docs.manual import pages

PAGE = Path(__file__).parents[2] / "docs" / "man" / "ce.1"
OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)")


def sections() -> dict[str, str]:
    """Return the text of the page by verb; "" is the text that is not about a verb."""
    text = PAGE.read_text(encoding="utf-8").replace("\\-", "-")
    text = re.sub(r"^\.(?:B|I|BR|BI|IR|RB|RI)\s+|\\f[BIR]", "", text, flags=re.MULTILINE)
    parts = re.split(r"^\.SS (?:ce )?([\w-]+).*$|^\.SH .*$", text, flags=re.MULTILINE)
    found: dict[str, str] = {}
    for verb, part in zip(["", *parts[1::2]], parts[0::2], strict=True):
        found[verb or ""] = found.get(verb or "", "") + part
    return found


def help_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the options that the help lists, without their descriptions."""
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    return "\n".join(re.findall(r"^ +(-.*?)(?:  |$)", capsys.readouterr().out, re.MULTILINE))


def options(text: str) -> set[str]:
    return set(OPTION.findall(text)) - {"-h", "--help"}


def test_the_page_has_a_section_for_each_verb_and_no_other() -> None:
    assert set(sections()) - {""} == set(verbs())


@pytest.mark.parametrize("verb", verbs())
def test_the_page_and_the_help_know_the_same_options(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert options(sections()[verb]) == options(help_of([verb], capsys))


def test_the_page_knows_the_options_of_ce_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert options(help_of([], capsys)) <= options(sections()[""])


MADE = pages()


def rendered(name: str, directory: Path, man: str) -> str:
    """Return a page as a reader sees it; fail on any message of groff about its source."""
    path = directory / name
    path.write_text(MADE[name], encoding="utf-8")
    # No configuration of the machine's, no pager, and lines wide enough not to be broken.
    environment = {"MANWIDTH": "1000", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [man, "--warnings", "--nh", "--nj", "-l", path],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(".\b", "", done.stdout)


def section(text: str, title: str) -> str:
    found = re.search(rf"^{title}\n((?: .*\n|\n)*)", text, re.MULTILINE)
    assert found, title
    return " ".join(found[1].split())


@pytest.mark.parametrize("verb", verbs())
def test_the_synopsis_of_a_command_is_its_usage(
    verb: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    need_tool: Callable[[str], str],
) -> None:
    page = rendered(f"ce-{verb}.1", tmp_path, need_tool("man"))
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    said = capsys.readouterr().out
    usage = " ".join(said.partition("\n\n")[0].removeprefix("usage: ").split())
    assert section(page, "SYNOPSIS") == usage
    assert section(page, "NAME") == f"ce-{verb} - {verbs()[verb].help}"
    assert len(section(page, "DESCRIPTION")) > 10
    in_help = re.findall(r"^ +(-.*?)(?:  |$)", said, re.MULTILINE)
    assert options("\n".join(in_help)) == options(section(page, "OPTIONS")) & options(said)


@pytest.mark.parametrize("name", [name for name in MADE if not name.startswith("ce-")])
def test_a_page_is_written_as_groff_wants_it(
    name: str, tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    assert section(rendered(name, tmp_path, need_tool("man")), "NAME")


def test_every_key_is_in_the_page_of_its_format() -> None:
    for page, keys in (
        ("container-engine-edf.5", KEYS),
        ("container-engine-config.5", tuple(SiteConfig.model_fields)),
        ("container-engine-config.5", tuple(f"policy.{name}" for name in Policy.model_fields)),
    ):
        for key in keys:
            assert f"\n\\fB{key}\\fR (" in MADE[page], key


def test_pages_point_to_pages_that_there_are() -> None:
    ours = re.compile(r"^\.BR (ce\S*|container\S*) \((\d)\)", re.MULTILINE)
    for text in MADE.values():
        for name, number in ours.findall(text.replace("\\-", "-")):
            assert f"{name}.{number}" in MADE
