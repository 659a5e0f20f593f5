"""The pages generated from the models and the command line are complete."""

import argparse
import re
from pathlib import Path

from container_engine.cli.command_line.verb_table import verbs
from container_engine.edf.document import KEYS
from container_engine.node.start import site_rules
from container_engine.site.model import Policy, SiteConfig
from container_engine.site.places import READ_ON_NODES
from docs.reference import MEANT_FOR_NODES, pages, parsers

PAGES = pages()


def headings(page: str) -> list[str]:
    lines = PAGES[page].splitlines()
    return [line.strip("# `[]") for line in lines if line.startswith("## ")]


def test_every_key_of_an_edf_has_a_section() -> None:
    assert headings("docs/reference/edf.md") == list(KEYS)


def test_every_key_of_the_configuration_has_a_section() -> None:
    expected = []
    for key in SiteConfig.model_fields:
        inner = [f"policy.{name}" for name in Policy.model_fields] if key == "policy" else []
        expected += [key, *inner]
    assert headings("docs/reference/configuration.md") == expected


def test_a_table_says_which_hosts_read_each_key() -> None:
    text = PAGES["docs/reference/configuration.md"]
    assert "| `policy.mount_sources` | submit host, and again each node |  |\n" in text
    assert "| `podman` | submit host | yes |\n" in text
    assert "| `pull` | submit host |  |\n" in text


def test_the_keys_that_nodes_read_are_those_of_the_launcher() -> None:
    code = Path(site_rules.__file__).read_text(encoding="utf-8")
    known = {
        *SiteConfig.model_fields,
        *(f"policy.{name}" for name in Policy.model_fields),
    }
    read = {key for key in known if f'"{key.removeprefix("policy.")}"' in code}
    assert read - {"policy"} == {*READ_ON_NODES}
    assert known > {*MEANT_FOR_NODES}


def test_every_verb_has_a_section_with_its_help() -> None:
    assert [name for name in parsers() if " " not in name] == list(verbs())
    assert headings("docs/reference/commands.md") == [f"ce {name}" for name in parsers()]


def test_options_are_rows_since_columns_of_a_terminal_do_not_fit_on_a_phone() -> None:
    text = PAGES["docs/reference/commands.md"]
    section = text.partition("## `ce lint`\n")[2].partition("\n## ")[0]
    parser = parsers()["lint"]
    options = {
        name
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        for name in action.option_strings
    }
    assert all(
        re.search(rf"^\| `.*{name}\b.*` \| \S", section, re.MULTILINE)
        for name in options - {"-h", "--help"}
    )
    assert "$ ce lint " in section
    assert not re.search(r"^ +\S", text, re.MULTILINE)


def test_a_key_is_described_in_the_words_of_toml() -> None:
    text = PAGES["docs/reference/configuration.md"]
    assert (
        "## `start_timeout_s`\n\nThe time after which a start has failed.\n\n"
        "Type: number; default: `120`; since 0.1.\n\n```text\nstart_timeout_s = 60\n```\n"
    ) in text
    assert "Type: array of strings; default: `[]`; since 0.1." in text
    assert 'Type: one of `age`, `always`, `missing`, `never`; default: `"age"`' in text
    assert "Type: table of strings; default: `{}`" in text
