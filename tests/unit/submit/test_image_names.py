"""Names of images where environments are meant, the reverse, and what is neither."""

from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.cli.main import main
from tests.unit import squashfs

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def home(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    need_tool: Callable[[str], str],
) -> Path:
    """Return the home of a user with the images `mine` and `localhost/app` and an environment."""
    need_tool("mksquashfs")
    (tmp_path / ".edf").mkdir()
    (tmp_path / ".edf/demo.toml").write_text('image = "/images/demo.sqsh"\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EDF_IMAGESTORE", str(tmp_path / "store"))
    monkeypatch.delenv("EDF_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "app"):
        squashfs.make(tmp_path / f"{name}.sqsh", {"bin/a": name})
        words = [f"./{name}.sqsh", *(["mine"] if name == "mine" else [])]
        assert main(["import", "-q", *words]) == 0
    capsys.readouterr()
    return tmp_path


def _hint(capsys: Capture, *words: str) -> str:
    assert main(list(words)) != 0
    return next(
        line for line in capsys.readouterr().err.splitlines() if line.startswith("ce: hint")
    )


@pytest.mark.parametrize(
    "words", [("run", "{}"), ("shell", "{}"), ("plan", "{}"), ("validate", "{}"), ("explain", "{}")]
)
@pytest.mark.parametrize(("name", "image"), [("mine", "mine"), ("app", "localhost/app")])
def test_an_image_in_place_of_an_environment_is_answered_with_the_commands(
    home: Path, capsys: Capture, words: tuple[str, ...], name: str, image: str
) -> None:
    (home / f"{name}.sqsh").unlink()
    assert _hint(capsys, *(word.format(name) for word in words)) == (
        f"ce: hint: '{name}' is an image; an environment for it: ce init {name} --image {image};"
        f" without one: ce run --image {image} -- COMMAND"
    )


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("verb", ["run", "shell"])
def test_a_wrong_name_is_answered_before_a_missing_terminal(capsys: Capture, verb: str) -> None:
    assert main([verb, "nosuch"]) == 125
    assert "no environment 'nosuch'" in capsys.readouterr().err
    assert main([verb, "--image", "demo"]) == 125
    said = capsys.readouterr().err
    assert said.startswith("ce: error: --image: 'demo': an environment, not an image\n")
    assert "or ce run demo -- COMMAND" in said


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("run", "--image", "demo", "--", "x"), "srun --environment=demo COMMAND, or ce run demo"),
        (("run", "--container-image=demo", "--", "x"), "srun --environment=demo COMMAND, or"),
        (("pull", "demo"), "ce list shows that of each environment"),
        (("run", "--image", "app", "--", "x"), "'app' is not here, but 'localhost/app' is"),
        (("inspect", "17"), "ce trace 17 shows its launch"),
        (("save", "mine", "-o", "x.tar"), "ce images -q shows its file"),
        (("save", "17", "my/kept:1"), "ce save 17 kept.sqsh, then ce import ./kept.sqsh my/kept:1"),
        (("save", "17", "-o", "x.sqsh"), "ce save 17 IMAGE.sqsh"),
        (("save", "17", "x.tar"), "ce save 17 x.sqsh"),
        (("import", "x.tar"), "did you mean './x.tar'?"),
        (("validate", "A=b"), "NAME=VALUE srun"),
        (("lock", "mine"), "ce init NAME --image mine"),
        (("run", "--image", "minee", "--", "x"), "did you mean 'mine'?"),
        (("plan", "./misspelt.toml"), "did you mean 'mine'?"),
        (("pull", "minne"), "did you mean 'mine'?"),
        (("pull", "appp"), "did you mean 'localhost/app'?"),
        (("inspect", "minee"), "did you mean 'mine'?"),
        (("rmi", "minee"), "did you mean 'mine'?"),
        (("rmi", "minee:2"), "ce images lists what is there"),
        (("rmi", "quay.io/minee"), "ce images lists what is there"),
    ],
)
def test_what_stands_in_the_wrong_place_is_answered_with_the_right_command(
    home: Path, capsys: Capture, words: tuple[str, ...], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    skopeo = home / "skopeo"
    skopeo.write_text("#!/bin/sh\necho 'level=fatal msg=\"manifest unknown\"' >&2; exit 1\n")
    skopeo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:/usr/bin:/bin")
    (home / "x.tar").touch()
    (home / "misspelt.toml").write_text('image = "minee"\n')
    (home / "app.sqsh").unlink()
    (home / "mine.sqsh").unlink()
    assert hint in _hint(capsys, *words)
