"""`ce init` as its user sees it."""

import io
import sys
from pathlib import Path

import pytest

from container_engine.cli.main import main
from container_engine.cli.verbs.init import TEMPLATE

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    for name in ("EDF_PATH", "CONDA_PREFIX", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "file", "name"),
    [
        (["torch"], ".edf/torch.toml", "torch"),
        (["teams/torch"], ".edf/teams/torch.toml", "teams/torch"),
        ([], "env.toml", "./env.toml"),
        (["./x"], "x.toml", "./x.toml"),
        (["sub/x.toml"], "sub/x.toml", "sub/x.toml"),
    ],
)
def test_a_new_environment_validates_and_is_found(
    home: Path, capsys: Capture, words: list[str], file: str, name: str
) -> None:
    assert main(["init", *words]) == 0
    said = capsys.readouterr()
    assert said.out == f"{home / file}\n"
    shown = words[0] if file.startswith(".edf") else str(home / file)
    wanted = f"next: edit it, ce validate {shown}, srun --environment={shown} COMMAND"
    assert said.err == f"ce: {wanted}\n"
    assert main(["validate", "--strict", name]) == 0
    assert main(["lint", "--strict", name]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("scratch", "line"), [("scratch", ""), ("absent", "# "), ("", "# ")])
def test_scratch_is_mounted_where_it_exists(
    home: Path, monkeypatch: pytest.MonkeyPatch, scratch: str, line: str
) -> None:
    monkeypatch.setenv("SCRATCH", str(home / scratch) if scratch else "")
    assert main(["init"]) == 0
    assert f'\n  {line}"${{SCRATCH}}",\n' in (home / "env.toml").read_text()


def test_the_first_directory_of_the_search_path_gets_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDF_PATH", f"{home}/mine:{home}/ours")
    assert main(["init", "torch"]) == 0
    assert (home / "mine/torch.toml").is_file()


def test_the_image_may_be_named(home: Path) -> None:
    assert main(["init", "--image", "${HOME}/a b.sqsh"]) == 0
    assert 'image = "${HOME}/a b.sqsh"\n' in (home / "env.toml").read_text()


def test_nothing_is_ever_overwritten(home: Path, capsys: Capture) -> None:
    (home / "env.toml").write_text("mine")
    assert main(["init"]) == 1
    assert (home / "env.toml").read_text() == "mine"
    assert capsys.readouterr().err == (
        f"ce: error: init: {home}/env.toml exists already\n"
        "ce: hint: it stays as it is; choose another name, or remove it first\n"
    )


def test_a_dangling_link_is_not_overwritten_either(home: Path) -> None:
    (home / "env.toml").symlink_to(home / "elsewhere")
    assert main(["init"]) == 1
    assert not (home / "elsewhere").exists()


def test_an_invalid_image_leaves_nothing_behind(home: Path, capsys: Capture) -> None:
    assert main(["init", "sub/x", "--image", "Bad Ref"]) == 1
    assert not (home / ".edf").exists()
    assert capsys.readouterr().err.startswith(f"ce: error: {home}/.edf/sub/x.toml:5: image: ")


def test_a_name_cannot_add_lines(capsys: Capture) -> None:
    assert main(["init", "x\nimage = 'y'"]) == 1
    assert "cannot be the name of an environment" in capsys.readouterr().err


def test_init_never_prompts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["init"]) == 0
    assert (home / "env.toml").is_file()


def test_what_is_commented_out_is_right_too(home: Path, capsys: Capture) -> None:
    """Each example line of the template is uncommented."""
    text = TEMPLATE.format(name="x", image='"ubuntu:24.04"', scratch="# ")
    text = text.replace("# base_environment", "# b")
    lines = [line.replace("# ", "", 1) if _is_example(line) else line for line in text.splitlines()]
    (home / "all.toml").write_text("\n".join(lines))
    assert main(["validate", "--strict", "all.toml"]) == 0, capsys.readouterr().err


def _is_example(line: str) -> bool:
    code = line.strip().removeprefix("# ")
    return line.strip().startswith("#") and code.startswith(
        ('"', "workdir =", "startup =", "OMP", "PATH =", "com.hooks.cxi.")
    )


def test_an_image_with_the_name_of_an_environment_is_reported(home: Path, capsys: Capture) -> None:
    assert main(["init", "base", "--image", "ubuntu:24.04"]) == 0
    assert capsys.readouterr().err == (
        "ce: next: edit it, ce validate base, srun --environment=base COMMAND\n"
    )
    assert main(["init", "mine", "--image", "base"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{home}/.edf/mine.toml\n"
    assert "image: 'base' is looked for in a registry, and an environment has this name" in said.err
    assert 'write base_environment = "base" and no image' in said.err


def test_a_new_environment_shows_how_the_shell_may_win(home: Path) -> None:
    assert main(["init"]) == 0
    assert '# LR = "${LR:-0.1}"  # the LR of your shell wins' in (home / "env.toml").read_text()


def test_a_file_that_hides_one_of_the_site_says_so(home: Path, capsys: Capture) -> None:
    (home / "site").mkdir()
    (home / "site/demo.toml").write_text('image = "ubuntu:24.04"\n')
    config = home / "config.toml"
    config.write_text(f'edf_dir = "{home}/site"\n')
    assert main(["--site", str(config), "init", "demo"]) == 0
    assert capsys.readouterr().err.startswith(
        f"ce: warning: 'demo' of the site ({home}/site/demo.toml) is hidden by this file;"
        " remove it to have that one back\n"
    )


def test_a_name_with_a_blank_is_printed_as_a_shell_takes_it(capsys: Capture) -> None:
    assert main(["init", "my env"]) == 0
    assert "ce validate 'my env', srun --environment='my env' COMMAND" in capsys.readouterr().err
    assert main(["validate", "--strict", "my env"]) == 0
