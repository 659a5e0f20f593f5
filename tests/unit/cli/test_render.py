"""`ce render` as its user sees it."""

import json
from pathlib import Path

import pytest

from container_engine.cli.main import main

Capture = pytest.CaptureFixture[str]
BASE = """\
image = "./images/x.sqsh"
mounts = ["./data:/data:ro", "/odd/$USER"]
entrypoint = false
[env]
PRICE = "5$$"
"""
TOP = """\
base_environment = "./base.toml"
workdir = "/work/${SLURM_JOB_ID}"
[annotations.com.hooks.ssh]
enabled = true
port = 15263
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USER", "a:user")
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "top.toml").write_text(TOP)
    return tmp_path


def test_json_shows_what_a_container_gets(here: Path, capsys: Capture) -> None:
    assert main(["render", "top.toml"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert json.loads(captured.out) == {
        "annotations": {"com.hooks.ssh.enabled": "true", "com.hooks.ssh.port": "15263"},
        "devices": [],
        "entrypoint": False,
        "env": {"PRICE": "5$"},
        "image": f"{here}/images/x.sqsh",
        "mounts": [f"{here}/data:/data:ro", "/odd/a\\:user:/odd/a\\:user"],
        "startup": [],
        "workdir": "/work/${SLURM_JOB_ID}",
        "writable": True,
    }


def test_toml_is_an_environment_again(here: Path, capsys: Capture) -> None:
    assert main(["render", "--format", "toml", "top.toml"]) == 0
    rendered = capsys.readouterr().out
    assert rendered == (
        "entrypoint = false\n"
        f'image = "{here}/images/x.sqsh"\n'
        "mounts = [\n"
        f'  "{here}/data:/data:ro",\n'
        '  "/odd/a\\\\:user:/odd/a\\\\:user",\n'
        "]\n"
        'workdir = "/work/${SLURM_JOB_ID}"\n'
        "writable = true\n"
        "\n"
        "[annotations]\n"
        '"com.hooks.ssh.enabled" = "true"\n'
        '"com.hooks.ssh.port" = "15263"\n'
        "\n"
        "[env]\n"
        'PRICE = "5$$"\n'
    )
    (here / "again.toml").write_text(rendered)
    assert main(["render", "--format", "toml", "again.toml"]) == 0
    assert capsys.readouterr().out == rendered


def test_warnings_go_to_stderr(here: Path, capsys: Capture) -> None:
    (here / "x.toml").write_text("mount = []\n")
    assert main(["render", "x.toml"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["mounts"] == []
    assert captured.err == (
        f"ce: warning: {here}/x.toml:1: unknown key 'mount' has no effect, did you mean 'mounts'?\n"
    )


def test_nothing_is_rendered_of_a_bad_environment(here: Path, capsys: Capture) -> None:
    (here / "x.toml").write_text("image = 1\nworkdir = 'x'\n")
    assert main(["render", "x.toml"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("ce: error: ") == 2
