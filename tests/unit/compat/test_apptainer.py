"""The commands apptainer and singularity over ce: what becomes of the lines that tools write."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from container_engine.cli.main import main as ce
from container_engine.compat import apptainer
from container_engine.compat.apptainer import Wanted

Capture = pytest.CaptureFixture[str]
USUAL = ["--container-mounts=/tmp:/tmp", "--container-mounts=/var/tmp:/var/tmp"]


def wanted(line: str, host: dict[str, str] | None = None, cwd: str = "/proc") -> Wanted:
    found = apptainer._parser().parse_args(line.split())
    return apptainer.wanted_of(found, found.image, {"HOME": "/root", **(host or {})}, cwd)


def test_by_default_the_places_of_the_host_are_there_and_the_image_is_read_only() -> None:
    assert wanted("exec x.sif true").options == [
        "--container-image=x.sif",
        "--no-container-entrypoint",
        "--container-workdir=/proc",
        "--container-readonly",
        *USUAL,
        "--container-mounts=/root:/root",
        "--container-mounts=/proc:/proc",
    ]
    assert "--container-mounts=/etc:/etc" not in wanted("exec x.sif true", cwd="/etc").options


def test_the_line_of_nextflow() -> None:
    host = {"SINGULARITYENV_NXF_TASK_WORKDIR": "/w"}
    found = wanted("exec --no-home --pid -B /proc /x.img /bin/bash -ue /proc/.command.sh", host)
    assert found.options[4:] == [
        *USUAL,
        "--container-mounts=/proc:/proc",
        "--container-unshare=pid",
    ]
    assert found.given == {"NXF_TASK_WORKDIR": "/w"}


def test_the_line_of_snakemake() -> None:
    found = wanted("exec --home /proc --bind /sys x.simg sh -c true")
    assert found.options[4:] == [
        *USUAL,
        "--container-mounts=/proc:/proc",
        "--container-mounts=/sys:/sys",
    ]
    assert found.env["HOME"] == "/proc"


def test_the_line_of_cwltool() -> None:
    found = wanted(
        "--quiet run --contain --ipc --cleanenv --no-eval --userns --home /proc:/abc"
        " --mount=type=bind,source=/sys,target=/tmp"
        " --mount=type=bind,source=/dev,target=/var/lib/x,readonly"
        " --pwd /abc --net --network none x.sif echo",
        {"SINGULARITYENV_TMPDIR": "/tmp", "LEFT": "out", "TERM": "vt100"},
        cwd="/elsewhere",
    )
    assert found.options == [
        "--container-image=x.sif",
        "--no-container-entrypoint",
        "--container-workdir=/abc",
        "--container-readonly",
        "--container-mounts=tmpfs:/var/tmp",
        "--container-mounts=/proc:/abc",
        "--container-mounts=/sys:/tmp",
        "--container-mounts=/dev:/var/lib/x:ro",
        "--container-unshare=ipc,net",
    ]
    assert {name: found.env.get(name) for name in ("HOME", "LEFT", "TERM", "LANG")} == {
        "HOME": "/abc",
        "LEFT": None,
        "TERM": "vt100",
        "LANG": "C",
    }


def test_variables_have_the_precedence_of_apptainer(tmp_path: Path) -> None:
    (tmp_path / "e").write_text("A=file\nexport B='of a file'\n")
    host = {
        "SINGULARITYENV_A": "1",
        "APPTAINERENV_A": "2",
        "SINGULARITYENV_C": "3",
        "APPTAINERENV_HOME": "/x",
        "APPTAINERENV_A;reboot": "x",
        "APPTAINER_BIND": "/sys:/s:ro",
        "LD_LIBRARY_PATH": "/l",
    }
    found = wanted(f"exec --env-file {tmp_path}/e --env D=x,y,E=z --nv x.sif true", host)
    assert found.given == {"A": "file", "C": "3", "B": "of a file", "D": "x,y", "E": "z"}
    assert "--container-mounts=/sys:/s:ro" in found.options
    assert not {"LD_LIBRARY_PATH", "APPTAINER_BIND", "SINGULARITYENV_A"} & set(found.env)
    assert found.env["APPTAINER_CONTAINER"] == "x.sif"
    assert found.devices == ["nvidia.com/gpu=all"]
    assert wanted("exec x.sif true", {"SINGULARITY_ROCM": "1"}).devices == ["amd.com/gpu=all"]


def test_an_option_of_variables_is_not_continued_by_the_next_one() -> None:
    assert wanted("exec --env A=1,2 --env B= --env C=x=y x true").given == {
        "A": "1,2",
        "B": "",
        "C": "x=y",
    }


def test_shell_code_has_no_values_of_variables_which_may_be_secret() -> None:
    assert "secret" not in apptainer._prelude({"TOKEN": "secret"}, "for f in x; do . $f; done; ")


def test_a_mount_is_a_row_of_csv_as_cwltool_writes_it() -> None:
    row = 'type=bind,"source=/a,b","target=/c ""d"""'
    found = apptainer._parser().parse_args(["exec", f"--mount={row}", "--bind=", "x", "true"])
    options = apptainer.wanted_of(found, "x", {"HOME": "/root"}, "/").options
    assert options[-1] == r'--container-mounts=/a\,b:/c "d"'


@pytest.mark.parametrize("content", [b"A='1\n", b"A=\xff'"])
def test_a_file_of_variables_with_an_open_quote_is_refused(
    content: bytes, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "e").write_bytes(content)
    assert apptainer.main(ce, ["exec", f"--env-file={tmp_path}/e", "docker://x", "true"]) == 255
    assert "a quote is not closed" in capsys.readouterr().err


def test_paths_with_colons_and_commas_stay_whole() -> None:
    assert r"--container-mounts=/a\:b:/c\,d:ro" in wanted(r"exec -B /a\:b:/c\,d:ro x true").options


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("exec --writable x.sif true", "--writable-tmpfs"),
        ("instance start x.sif web", "services run as steps of a job"),
        ("exec library://a/b true", "only docker://, oras:// and files are read"),
        ("pull --name x.sif shub://a/b", "only docker://, oras:// and files are read"),
        ("build x.sif x.def", "write a Dockerfile"),
        ("exec --overlay o.img x.sif true", "ce save"),
        ("exec --env A=1 --env B docker://x true", "NAME=VALUE"),
        ("exec /usr true", "ce import ./DIRECTORY"),
        ("exec --network bridge /none.sif true", "no such file"),
        ("verify x.sif", "ce inspect FILE"),
        ("", "apptainer exec IMAGE COMMAND"),
    ],
)
def test_what_is_not_offered_is_refused_with_what_to_do(
    line: str, said: str, capsys: Capture
) -> None:
    assert apptainer.main(ce, line.split()) == 255
    assert said in capsys.readouterr().err


def test_an_unknown_option_is_an_error_as_of_apptainer(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        apptainer.main(ce, ["exec", "--no-such-thing", "x.sif"])
    assert caught.value.code == 255
    assert "--no-such-thing" in capsys.readouterr().err


def test_tools_find_a_version_that_they_know(capsys: Capture) -> None:
    assert apptainer.main(ce, ["--version"]) == 0
    assert capsys.readouterr().out.startswith("apptainer version 1.4.0")


@pytest.mark.parametrize(
    ("line", "target", "words"),
    [
        ("pull --name a.simg docker://x/y:1", "a.simg", ["--", "docker://x/y:1"]),
        ("pull docker://x/y:1", "y_1.sif", ["--", "docker://x/y:1"]),
        ("pull --arch arm64 b.sif docker://y", "b.sif", ["--arch=arm64", "--", "docker://y"]),
        ("pull --dir d docker://y", "d/y_latest.sif", ["--", "docker://y"]),
        (
            "build --fakeroot b.sif docker-archive:///x.tar",
            "b.sif",
            ["--", "docker-archive:/x.tar"],
        ),
    ],
)
def test_an_image_is_pulled_into_a_file(line: str, target: str, words: list[str]) -> None:
    found = apptainer._parser().parse_args(line.split())
    assert apptainer._target(found) == (os.path.abspath(target), words)


def test_a_pull_removes_what_a_killed_one_has_left_and_an_interrupted_one_nothing(
    tmp_path: Path,
) -> None:
    line = ["pull", f"{tmp_path}/x.sif", "docker://x"]

    def killed(_words: Sequence[str]) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def interrupted(_words: Sequence[str]) -> int:
        raise KeyboardInterrupt

    for work, number, left in ((killed, signal.SIGKILL, 1), (interrupted, signal.SIGINT, 0)):
        if (child := os.fork()) == 0:
            apptainer.main(work, line)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == number
        assert len(list(tmp_path.iterdir())) == left
