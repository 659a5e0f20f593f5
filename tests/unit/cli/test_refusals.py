"""Errors of environment files, each provoked: one block with the line, a hint and the page.

That srun, salloc and sbatch say the same, and run nothing: tests/slurm/test_catalogue_edf.py.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.cli.main import main
from tests.unit import squashfs

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return squashfs.make(tmp_path_factory.mktemp("image") / "i.sqsh", {"etc/x": ""})


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def refused(environment: object, code: str, *words: str, said: Capture) -> None:
    """Check that planning fails with one error block, which has the page and all words."""
    assert main(["plan", str(environment)]) != 0
    text = said.readouterr().err
    (cause,) = [line for line in text.splitlines() if line.startswith("ce: error: ")]
    assert [word for word in words if word not in cause] == [], text
    assert f"\nce: see: ce help {code}\n" in text
    assert text.count("\nce: hint: ") == 1, text


# name, text below the image's line, code, words of the error line
_TEXTS = [
    ("a string not closed", 'workdir = "/tmp\n', "edf-syntax", (":2",)),
    ("a table not closed", "[env\nA = 1\n", "edf-syntax", (":2",)),
    ("a key twice", "writable = true\nwritable = false\n", "edf-syntax", (":3",)),
    ("a value without quotes", "workdir = /tmp\n", "edf-syntax", (":2",)),
    ("a string for an array", 'mounts = "a:b"\n', "edf-mount", (":2", "mounts")),
    ("a number for a variable's array", "[env]\nA = [1]\n", "edf-value", (":3", "env.A")),
    ("a relative workdir", 'workdir = "x"\n', "edf-value", (":2", "'x'")),
    ("a relative source", 'mounts = ["a:/b"]\n', "edf-mount", (":2", "'a'")),
    ("an unknown flag", 'mounts = ["/tmp:/b:fast"]\n', "edf-mount", ("'fast'",)),
    ("a mount on /proc", 'mounts = ["/tmp:/proc"]\n', "edf-mount", ("'/proc'",)),
    ("a table for an annotation", '[annotations]\n"a.b" = [[1]]\n', "edf-annotation", (":3",)),
    (
        "an annotation in two forms",
        '[annotations]\n"a.b" = "1"\n[annotations.a]\nb = "2"\n',
        "edf-annotation",
        ("a.b",),
    ),
    ("a size that is none", '[annotations]\n"com.ce.tmpfs_size" = "x"\n', "edf-annotation", ()),
    ("an undefined variable", 'workdir = "${NO_SUCH}"\n', "variable-undefined", ("NO_SUCH",)),
    ("a variable's own words", '[env]\nA = "${B:?set B}"\n', "variable-undefined", ("set B",)),
    ("a command", 'workdir = "$(pwd)"\n', "variable-form", ("$(",)),
    ("a huge variable", f'[env]\nA = "{"x" * 200_000}"\n', "variable-too-large", ("env.A",)),
    ("a variable of the image", '[env]\nA = "${image:NONE}"\n', "image-variable", ("NONE",)),
    (
        "a container for each task, and a line for one",
        'startup = ["true"]\n[annotations]\n"com.ce.scope" = "task"\n"com.ce.start" = "crun"\n',
        "scope-task",
        (":2", "startup", "com.ce.scope"),
    ),
    ("a base that is not there", 'base_environment = "nope"\n', "environment-not-found", ("nope",)),
    (
        "a hook's value",
        '[annotations.com.hooks.ssh]\nenabled = "true"\nport = "many"\n',
        "edf-annotation",
        ("port",),
    ),
]


@pytest.mark.parametrize(
    ("text", "code", "words"), [t[1:] for t in _TEXTS], ids=[t[0] for t in _TEXTS]
)
def test_a_bad_file_is_refused_with_its_line_and_page(
    tmp_path: Path, image: Path, capsys: Capture, text: str, code: str, words: tuple[str, ...]
) -> None:
    edf = tmp_path / "e.toml"
    edf.write_text(f'image = "{image}"\n{text}')
    where = str(edf) if code != "environment-not-found" else ""
    refused(edf, code, where, *words, said=capsys)


def _directory(here: Path) -> None:
    (here / "e.toml").mkdir()


def _circle(here: Path) -> None:
    (here / "e.toml").write_text(f'base_environment = "{here}/e.toml"\n')


def _tower(here: Path) -> None:
    for number in range(10):
        (here / f"{number}.toml").write_text(f'base_environment = "{here}/{number + 1}.toml"\n')
    (here / "10.toml").write_text('image = "x"\n')
    (here / "0.toml").rename(here / "e.toml")


def _has(content: bytes) -> Callable[[Path], object]:
    return lambda here: (here / "e.toml").write_bytes(content)


_FILES: list[tuple[str, Callable[[Path], object], str]] = [
    ("no such path", lambda _here: None, "environment-not-found"),
    ("a directory", _directory, "environment-unreadable"),
    ("not text", _has(b'image = "\0"\n'), "edf-syntax"),
    ("not UTF-8", _has(b'image = "\xe4"\n'), "edf-syntax"),
    ("larger than a mebibyte", _has(b"#" * ((1 << 20) + 1)), "edf-too-large"),
    ("nested too deep", _has(b"x = " + b"[" * 2000 + b"]" * 2000), "edf-too-large"),
    ("its own base", _circle, "edf-inheritance"),
    ("eleven levels", _tower, "edf-inheritance"),
    ("no image", _has(b"writable = false\n"), "image-not-named"),
]


@pytest.mark.parametrize(("make", "code"), [f[1:] for f in _FILES], ids=[f[0] for f in _FILES])
def test_a_file_that_cannot_be_used_is_refused(
    tmp_path: Path, capsys: Capture, make: Callable[[Path], object], code: str
) -> None:
    make(tmp_path)
    refused(tmp_path / "e.toml", code, f"{tmp_path}/", said=capsys)


def test_a_name_that_is_none_is_refused(capsys: Capture) -> None:
    refused("no-such-environment", "environment-not-found", "no-such-environment", said=capsys)
