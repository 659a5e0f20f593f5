"""Text of an image, a registry or another user cannot leave the line on which `ce` prints it."""

import ast
import json
import tomllib
from pathlib import Path

import pytest

from container_engine.cli.main import main
from container_engine.printing import output
from tests.unit import squashfs
from tests.unit.cli.conftest import Installed

PACKAGE = Path(__file__).parents[3] / "container_engine"
SPEAKING = [
    p for room in ("cli", "compat", "tools", "printing") for p in (PACKAGE / room).rglob("*.py")
]
EVIL = "red\033[31m\rforged\nce: error: no\x9b2K\u202e"
SHOWN = r"red\x1b[31m\rforged\nce: error: no\x9b2K\u202e"


def is_bare(node: ast.Call) -> bool:
    """Check whether a call prints to stdout directly."""
    called = ast.unparse(node.func)
    stdout = called.removeprefix("sys.").startswith(("stdout.write", "stdout.buffer"))
    return called == "print" or stdout or called == "os.write"


@pytest.mark.parametrize("path", sorted(SPEAKING), ids=lambda path: path.stem)
def test_what_is_printed_goes_through_one_module(path: Path) -> None:
    if path.stem == "output":
        return
    tree = ast.parse(path.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert [f"line {call.lineno}: use printing/output.py" for call in calls if is_bare(call)] == []


def test_a_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.line(EVIL)
    output.line("größer")
    assert capsys.readouterr().out == f"{SHOWN}\ngrößer\n"


def test_a_colour_is_ours(capsys: pytest.CaptureFixture[str]) -> None:
    output.line("\033[0m", "31")
    output.line("said", "33", before="warning ")
    said = capsys.readouterr().out
    assert said == "\033[31m\\x1b[0m\033[0m\n\033[33mwarning \033[0msaid\n"


@pytest.mark.parametrize("content", ["a\tb\n\033c\n", "a\tb\n\033c"])
def test_text_keeps_its_lines_and_columns(content: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.text(content)
    output.text("")
    assert capsys.readouterr().out == "a       b\n\\x1bc\n"


@pytest.mark.parametrize(
    "words", [("render",), ("render", "--format=toml"), ("plan", "--json")], ids=" ".join
)
def test_an_environment_that_is_printed_commands_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """The printed document still means what was written."""
    escapes = r"red\u001b[31m\u007f\u009b2K\u202e\U000e0001größer"
    edf = tmp_path / "x.toml"
    edf.write_text(f'image = "{squashfs.make(tmp_path / "x.sqsh", {})}"\nenv.A = "{escapes}"\n')
    assert main([*words, str(edf)]) == 0
    said = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in said)
    env = (tomllib if "--format=toml" in words else json).loads(said)["env"]
    value = env["A"] if isinstance(env, dict) else env[0]["value"]
    assert value == "red\033[31m\x7f\x9b2K\u202e\U000e0001größer"


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    output.document({"name": EVIL})
    said = capsys.readouterr().out
    assert said.isascii()
    assert "\033" not in said
    assert json.loads(said) == {"version": 1, "name": EVIL}


def test_what_an_image_says_of_itself_stays_on_its_line(installed: Installed) -> None:
    image = squashfs.make(installed.home / "i.sqsh", {f"d{EVIL}/f": "content"})
    config = {"config": {"Env": [f"A={EVIL}"], "Labels": {EVIL: EVIL}}, "author": EVIL}
    image.with_name("i.sqsh.json").write_text(json.dumps(config))
    for words in ((), ("--json",)):
        done = installed.ce("inspect", str(image), *words)
        assert done.returncode == 0, done.stderr
        assert not set("\033\r\x9b\u202e") & set(done.stdout)
        assert "\nce: error" not in done.stdout


def test_the_key_of_an_annotation_stays_on_its_line(installed: Installed) -> None:
    edf = installed.home / "e.toml"
    edf.write_text(f'image = "/i.sqsh"\n[annotations]\n{json.dumps(EVIL)} = "x"\n')
    done = installed.ce("explain", str(edf))
    assert f"annotations.{SHOWN} = " in done.stdout, done.stdout + done.stderr
