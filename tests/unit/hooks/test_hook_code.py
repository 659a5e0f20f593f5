"""A hook's package brings verbs and parameters, and nothing but the engine's own hooks has code."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from container_engine.base import hook_code
from container_engine.cli.command_line import verb_table
from container_engine.cli.main import main

_DATA = """
summary = "a greeting"
help = "Greets."
code = "ce_greeting"

[verbs.greet-all]
help = "greet everybody"
examples = ["ce greet-all"]
"""
_VERB = """
def configure(parser):
    parser.add_argument("name")


def execute(arguments, context):
    print("hello,", arguments.name)
    return 3
"""


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    package = tmp_path / "hooks/greeting/ce_greeting"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "verb_greet_all.py").write_text(_VERB)
    (package.parent / "hook.toml").write_text(_DATA)
    (tmp_path / "hooks/broken").mkdir()
    (tmp_path / "hooks/broken/hook.toml").write_text("\n[verbs.lost\n")
    monkeypatch.setattr(hook_code, "directory", lambda _prefix: str(tmp_path / "hooks"))
    verb_table.hook_verbs.cache_clear()
    yield tmp_path / "hooks"
    verb_table.hook_verbs.cache_clear()


@pytest.mark.usefixtures("catalog")
def test_a_hook_brings_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    # the second word is a verb of the engine's
    assert main(["greet-all", "ps"]) == 3
    assert capsys.readouterr().out == "hello, ps\n"
    assert "  ce greet-all  greet everybody\n" in verb_table.overview()
    assert list(verb_table.hook_verbs()) == ["greet-all"]
    with pytest.raises(SystemExit):
        main(["greet-all"])
    assert "ce: hint: for example ce greet-all; 'ce greet-all --help'" in capsys.readouterr().err


def test_a_plan_names_no_code_outside_of_the_hooks_of_the_engine(catalog: Path) -> None:
    other = catalog.parent / "other/ce_other"
    other.mkdir(parents=True)
    (other / "node.py").touch()
    assert hook_code.load("", "greeting", "ce_greeting", "verb_greet_all") is not None
    assert hook_code.load("", "../other", "ce_other", "node") is None
    assert hook_code.load("", "greeting", "../../other/ce_other", "node") is None
    assert hook_code.load("", "greeting", "ce_greeting", "node") is None
