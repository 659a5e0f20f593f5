"""`ce list` as its user sees it."""

import json
from pathlib import Path

import pytest

from container_engine.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with environments, one of which hides an environment of the site."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EDF_PATH", raising=False)
    (tmp_path / "config.toml").write_text(f'edf_dir = "{tmp_path}/site"\n')
    for path, text in {
        "home/.edf/train.toml": 'base_environment = "demo"\n',
        "home/.edf/team/large.toml": "image = 1\n",
        "home/.edf/host.toml": 'image = ""\n',
        "site/demo.toml": 'image = "ubuntu:24.04"\n',
        "site/train.toml": 'image = "debian:12"\n',
        "site/base.toml": 'workdir = "/"\n',
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def listed(home: Path, *words: str) -> int:
    return main(["--site", str(home / "config.toml"), "list", *words])


def test_each_environment_has_a_line_with_its_image_and_its_file(
    home: Path, capsys: Capture
) -> None:
    assert listed(home) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [line.split(maxsplit=1) for line in out.replace(str(home), "").splitlines()] == [
        ["NAME", "IMAGE                     FILE"],
        ["host", "(none: runs on the host)  ~/.edf/host.toml"],
        ["train", "ubuntu:24.04              ~/.edf/train.toml"],
        ["team/large", "(not valid: ce validate)  ~/.edf/team/large.toml"],
        ["base", "(none: base for others)   /site/base.toml"],
        ["demo", "ubuntu:24.04              /site/demo.toml"],
    ]


def test_programs_get_whole_paths(home: Path, capsys: Capture) -> None:
    assert listed(home, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == 1
    assert document["environments"][1:3] == [
        {
            "name": "train",
            "file": f"{home}/home/.edf/train.toml",
            "image": "ubuntu:24.04",
            "valid": True,
            "description": "",
        },
        {
            "name": "team/large",
            "file": f"{home}/home/.edf/team/large.toml",
            "image": None,
            "valid": False,
            "description": "",
        },
    ]


def test_no_environment_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("EDF_PATH", str(tmp_path / "none"))
    (tmp_path / "config.toml").write_text(f'edf_dir = "{tmp_path}/none"\n')
    assert listed(tmp_path) == 0
    assert capsys.readouterr() == ("no environments yet (ce init NAME creates one)\n", "")


def test_the_first_of_several_site_directories_takes_precedence(
    home: Path, capsys: Capture
) -> None:
    config = home / "config.toml"
    config.write_text(f'{config.read_text()}edf_dirs = ["{home}/more", "{home}/most"]\n')
    for name, image in {
        "more/demo": "no",
        "more/x": "more:1",
        "most/x": "no",
        "most/y": "y:1",
    }.items():
        path = home / f"{name}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'image = "{image}"\n')
    assert listed(home) == 0
    lines = capsys.readouterr().out.replace(str(home), "").splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    assert rows["demo"] == ["ubuntu:24.04", "/site/demo.toml"]
    assert rows["x"] == ["more:1", "/more/x.toml"]
    assert rows["y"] == ["y:1", "/most/y.toml"]


def test_an_environment_says_what_it_is_for_and_not_what_its_base_is_for(
    home: Path, capsys: Capture
) -> None:
    demo = home / "site/demo.toml"
    demo.write_text(f'{demo.read_text()}description = "to try things out"\n')
    assert listed(home) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[-1] == "DESCRIPTION"
    assert [line for line in lines if line.endswith("to try things out")] == [
        next(line for line in lines if line.startswith("demo "))
    ]
    assert listed(home, "--json") == 0
    found = json.loads(capsys.readouterr().out)["environments"]
    assert {one["name"]: one["description"] for one in found if one["description"]} == {
        "demo": "to try things out"
    }
