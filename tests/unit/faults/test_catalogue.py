"""The catalogue of errors, its pages, and the code that raises errors use the same codes."""

import ast
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from container_engine.cli.verbs.help import codes
from container_engine.edf.document import KEYS
from container_engine.faults.catalogue import EITHER, FAULTS, SITE, US, YOU, code_for
from container_engine.tools.help_pages import TOPICS
from docs.errors import DIRECTORY, END, EXAMPLES, INDEX, body, pages

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "container_engine"
ERRORS = {"UserError", "SiteError", "InternalError", "CeError", "LaunchError"}
# Errors raised here end a launch: each of them has a page.
LAUNCHING = ("node", "submit", "images", "build", "site", "plan", "base/process.py")
# Only `ce SOMETHING` raises the errors of these files.
OF_VERBS = {
    *("build/container_archive.py", "build/save_named.py"),
    *("build/inputs.py", "tools/cdi.py"),
    *("node/inside/tasks.py", "node/start/without_slurm.py"),
}


def calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node


def test_a_code_is_a_few_plain_words_and_says_who_when_and_how() -> None:
    for code, fault in FAULTS.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+){1,3}", code)
        assert fault.who in {YOU, SITE, US, EITHER}
        assert fault.code in {125, 126, 127, 128 + signal.SIGKILL}
        for text in (fault.what, fault.remedy):
            assert text
            assert not text.endswith(".")
            assert text == text.strip()


def test_the_pages_are_up_to_date() -> None:
    for path, text in pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run: make generated"


def test_each_code_has_a_page_with_more_than_its_head_and_each_page_a_code() -> None:
    assert {path.stem for path in DIRECTORY.iterdir()} == set(FAULTS)
    for code in FAULTS:
        assert len(body(code).split()) >= 5, code
    assert END not in INDEX.read_text(encoding="utf-8")


def test_each_error_that_a_user_can_make_has_an_example() -> None:
    assert list(EXAMPLES) == [code for code, fault in FAULTS.items() if fault.who == YOU]
    assert {tuple(example) for example in EXAMPLES.values()} == {("wrote", "see", "write")}


def test_each_topic_of_help_has_a_page_and_each_page_is_listed() -> None:
    found = {path.stem for path in (ROOT / "docs/guide/topics").iterdir()}
    assert found == set(TOPICS)
    listed = [line.partition(" ")[0] for line in codes().splitlines()]
    assert {*FAULTS, *TOPICS} <= set(listed)


@pytest.mark.parametrize("place", LAUNCHING)
def test_each_error_of_a_launch_has_a_code(place: str) -> None:
    start = PACKAGE / place
    for path in sorted(start.rglob("*.py") if start.is_dir() else [start]):
        if str(path.relative_to(PACKAGE)) in OF_VERBS:
            continue
        for call in calls(path):
            assert isinstance(call.func, ast.Name)
            if call.func.id not in ERRORS:
                continue
            named = any(word.arg == "see" for word in call.keywords)
            starred = any(isinstance(argument, ast.Starred) for argument in call.args)
            where = f"{path.relative_to(ROOT)}:{call.lineno}"
            assert named or starred or len(call.args) >= 3, where


def test_each_code_in_the_sources_is_in_the_catalogue() -> None:
    for path in PACKAGE.rglob("*.py"):
        for call in calls(path):
            assert isinstance(call.func, ast.Name)
            for word in call.keywords:
                if word.arg == "see" and isinstance(word.value, ast.Constant):
                    assert word.value.value in FAULTS or not word.value.value, f"{path}: {call}"
            place = 2 if call.func.id in ERRORS else None
            if place is not None and len(call.args) > place:
                code = call.args[place]
                if isinstance(code, ast.Constant):
                    assert code.value in FAULTS, f"{path}:{call.lineno}"


def test_every_code_arises_somewhere() -> None:
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "spank_plugin").glob("[!t]*/*.[ch]")]
    others = [file for file in files if file.name != "catalogue.py"]
    text = "\n".join(file.read_text(encoding="utf-8") for file in others)
    helps = re.findall(r"\bCE_HELP_(\w+)", text)
    in_c = {name.lower().replace("_", "-") for name in helps} | set(
        re.findall(r"ce help ([\w-]+)", text)
    )
    arising = in_c | {code_for("", key) for key in KEYS}
    assert [code for code in FAULTS if code not in arising and f'"{code}"' not in text] == []
