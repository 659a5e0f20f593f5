"""The command enroot over ce: names for image files, and what becomes of its options."""

import os
from pathlib import Path

import pytest

from container_engine.cli.main import main as ce
from container_engine.compat import enroot

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "ENROOT_MOUNT_HOME", "ENROOT_REMAP_ROOT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tool.sqsh").write_text("an image")
    return tmp_path


def said(capsys: Capture, *words: str) -> tuple[int, str]:
    code = enroot.main(ce, list(words))
    out, err = capsys.readouterr()
    return code, out + err


def started(*words: str) -> list[str]:
    found = enroot._parser().parse_args(["start", *words])
    return enroot.start_words(found, enroot.names(os.environ), os.environ)


def test_a_name_stands_for_its_file(home: Path, capsys: Capture) -> None:
    assert said(capsys, "list") == (0, "")
    assert said(capsys, "create", "tool.sqsh") == (0, "")
    assert said(capsys, "create", "-n", "other", str(home / "tool.sqsh")) == (0, "")
    assert said(capsys, "list") == (0, "other\ntool\n")
    assert said(capsys, "list", "-f")[1].splitlines()[0].startswith("NAME PID COMM STATE")
    assert started("tool", "ls", "-l") == [
        *("run", f"--container-image={home}/tool.sqsh", "--", "ls", "-l")
    ]
    assert said(capsys, "export", "-o", "copy.sqsh", "other") == (0, "")
    assert (home / "copy.sqsh").read_text() == "an image"
    assert said(capsys, "remove", "-f", "tool", "other") == (0, "")
    assert said(capsys, "list") == (0, "")
    assert (home / "tool.sqsh").exists()


@pytest.mark.usefixtures("home")
def test_what_is_there_is_kept_unless_forced(capsys: Capture) -> None:
    said(capsys, "create", "tool.sqsh")
    code, text = said(capsys, "create", "tool.sqsh")
    assert (code, text) == (
        1,
        "ce: error: enroot: container already exists: tool\nce: hint: enroot create -f\n",
    )
    assert said(capsys, "create", "-f", "tool.sqsh") == (0, "")
    code, text = said(capsys, "export", "-o", "tool.sqsh", "tool")
    assert (code, text.splitlines()[0]) == (1, "ce: error: enroot: file already exists: tool.sqsh")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["remove", "none"], "enroot: no such container: none"),
        (["create", "none.sqsh"], "enroot: no such file: none.sqsh"),
        (["create", "-n", "../x", "tool.sqsh"], "enroot: invalid container name: ../x"),
        (["start", "none", "true"], "enroot: no such container: none"),
        (["exec", "1", "true"], "process 1 is not one of yours in a container"),
        (["exec", "x", "true"], "enroot exec: x: not a process id"),
        (["bundle", "x"], "enroot bundle: not offered by the container engine"),
        (["import", "dockerd://x"], "enroot import: dockerd://x: expected docker:// or podman://"),
    ],
)
@pytest.mark.usefixtures("home")
def test_what_cannot_be_done_is_one_line(words: list[str], message: str, capsys: Capture) -> None:
    code, text = said(capsys, *words)
    assert (code, text.splitlines()[0]) == (1, f"ce: error: {message}")


@pytest.mark.parametrize(
    ("uri", "file"),
    [
        ("docker://ubuntu", "ubuntu.sqsh"),
        ("docker://ubuntu:24.04", "ubuntu+24.04.sqsh"),
        ("docker://nvcr.io#nvidia/pytorch:24.05-py3", "nvidia+pytorch+24.05-py3.sqsh"),
        ("docker://$oauthtoken@nvcr.io#nvidia/cuda:12", "nvidia+cuda+12.sqsh"),
    ],
)
def test_an_image_becomes_a_file_of_the_same_name(uri: str, file: str) -> None:
    found = enroot._parser().parse_args(["import", "-a", "aarch64", uri])
    assert enroot.import_words(found) == ["import", "-o", file, "--arch", "aarch64", "--", uri]
    found = enroot._parser().parse_args(["import", "-o", "/x.sqsh", uri])
    assert enroot.import_words(found) == ["import", "-o", "/x.sqsh", "--", uri]


def test_options_of_a_start_become_those_of_a_container(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = f"--container-image={home}/tool.sqsh"
    words = ["--rw", "-r", "-m", "/a:/b", "-e", "A=1", "-e", "B", "./tool.sqsh", "env", "-i"]
    assert started(*words) == [
        *("run", image, "--container-remap-root", "--container-writable"),
        *("--container-mounts=/a:/b", "--container-env=A,B", "--", "env", "-i"),
    ]
    monkeypatch.setenv("ENROOT_MOUNT_HOME", "y")
    monkeypatch.setenv("ENROOT_REMAP_ROOT", "n")
    assert started("tool.sqsh") == ["shell", image, "--container-mount-home"]
