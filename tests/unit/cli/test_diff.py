"""`ce diff` as its user sees it."""

from pathlib import Path

import pytest

from container_engine.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def diff(here: Path, one: str, other: str) -> int:
    (here / "one.toml").write_text(one)
    (here / "other.toml").write_text(other)
    return main(["diff", "one.toml", "other.toml"])


def test_two_spellings_of_the_same_value_do_not_differ(here: Path, capsys: Capture) -> None:
    one = 'mounts = ["/a"]\n[annotations]\ncom.hooks.ssh.enabled = true\n'
    other = 'mounts = ["/a/:/a"]\n[annotations.com.hooks.ssh]\nenabled = "true"\n'
    assert diff(here, one, other) == 0
    assert capsys.readouterr() == ("", "")


def test_what_differs_is_named_with_its_lines(here: Path, capsys: Capture) -> None:
    one = 'image = "a:1"\nmounts = ["/a", "/b"]\n[env]\nA = "1"\nC = "1"\n'
    other = 'image = "a:2"\nmounts = ["/b", "/c"]\nwritable = false\n[env]\nA = "1"\nB = "2"\n'
    assert diff(here, one, other) == 1
    assert capsys.readouterr().out.replace(f"{here}/", "") == (
        '+ env.B = "2"  # other.toml:6\n'
        '- env.C = "1"  # one.toml:5\n'
        '- image = "a:1"  # one.toml:1\n'
        '+ image = "a:2"  # other.toml:1\n'
        '- mounts = "/a:/a"  # one.toml:2\n'
        '+ mounts = "/c:/c"  # other.toml:2\n'
        "- writable = true  # default\n"
        "+ writable = false  # other.toml:3\n"
    )


def test_a_different_order_is_a_difference_where_order_matters(here: Path, capsys: Capture) -> None:
    assert diff(here, 'startup = ["a", "b"]\n', 'startup = ["b", "a"]\n') == 1
    assert capsys.readouterr().out == "~ startup: the same entries in another order\n"


def test_trouble_has_an_exit_code_of_its_own(here: Path, capsys: Capture) -> None:
    assert diff(here, "image = 1\n", "") == 2
    assert "expected a string" in capsys.readouterr().err
