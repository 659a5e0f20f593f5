"""The command line of `ce run` and `ce shell`, for users who know other tools."""

import argparse
from pathlib import Path

import pytest

from container_engine.cli.command_line.parser import Parser, build, of_verb
from container_engine.cli.command_line.verb_table import verbs
from container_engine.cli.main import main
from tests.unit import squashfs
from tests.unit.cli.conftest import Installed

Capture = pytest.CaptureFixture[str]
_ENV_FILE = "# C=1\nA=1\n  export B='x y'\n"


def refused(capsys: Capture, *words: str) -> str:
    """Return the first line of the error of a wrong command line."""
    try:
        code = main(list(words))
    except SystemExit as end:
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    return err.splitlines()[0].removeprefix("ce: error: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-v", "/a:/b"], 'run: -v: in the environment file: mounts = ["/a:/b"]'),
        (["--volume=/a:/b"], 'run: --volume: in the environment file: mounts = ["/a:/b"]'),
        (["-e", "A=B C"], 'run: -e: in the environment file, below [env]: A = "B C"'),
        (["--env", "A"], 'run: --env: in the environment file, below [env]: A = "${A}"'),
        (["-itw", "/x"], 'run: -w: in the environment file: workdir = "/x"'),
        (
            ["-p", "80:80"],
            "run: -p: the container has the host's network: every port is open as it is",
        ),
        (
            ["--name", "x"],
            "run: --name: a job has one: srun -J NAME; to join a container by name: srun"
            " --container-name=NAME (ce help one-container)",
        ),
        (
            ["-d"],
            "run: -d: a container ends with its command; to run in the background: sbatch",
        ),
    ],
)
def test_an_option_of_another_tool_is_answered_with_ours(
    words: list[str], message: str, capsys: Capture
) -> None:
    assert refused(capsys, "run", *words, "demo", "--", "ls") == message


def _refused_by(parser: Parser) -> dict[str, argparse.Action]:
    """Return the options that a verb has only to refuse them."""
    return {
        name: action
        for action in parser._actions
        for name in action.option_strings
        if hasattr(action, "instead")
    }


@pytest.mark.parametrize("verb", [verb for verb in verbs() if verb != "help"])
def test_no_verb_is_surprised_by_an_option_of_another_tool(verb: str, capsys: Capture) -> None:
    """Also not by one that only other verbs answer; `ce help` takes any words."""
    whole = build({verb, "run", "build"})
    parser = of_verb(whole, verb)
    its = _refused_by(parser)
    for name, action in (
        _refused_by(of_verb(whole, "run")) | _refused_by(of_verb(whole, "build"))
    ).items():
        if name not in its and any(own.startswith(name) for own in parser._option_string_actions):
            continue  # the verb has an option of this name, or one that may be cut to it
        for value in ["/a:/b", "~/a:/b", "a", "", "A=b"] if name in its else ["/a:/b"]:
            line = refused(capsys, verb, name, *([] if action.nargs == 0 else [value]), "x")
            assert name in line if name in its else "internal" not in line


def test_all_options_of_another_tool_are_answered_at_once_with_a_command_that_does_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["-e", "MODE=very fast", "-e", "TERM", "-v", "/a:/b", "-v", "/c:/c", "-w", "/b", "-it"]
    assert main(["run", *words, "--image", "x.sqsh", "--", "ls", "-l"]) == 2
    *errors, hint = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[3] for line in errors] == ["-e", "-e", "-v", "-v", "-w"]
    assert hint == (
        "ce: hint: for this once: MODE='very fast' ce run --container-image=x.sqsh"
        " --container-mounts=/a:/b,/c:/c --container-workdir=/b --container-env=MODE,TERM"
        " -- ls -l"
    )
    for text, names in ((None, "'--container-env=NAME,…'"), (_ENV_FILE, "--container-env=A,B")):
        if text is not None:
            (tmp_path / ".env").write_text(text)
        assert main(["run", "--env-file", ".env", "-v", "/a:/b", "demo", "--", "ls"]) == 2
        assert capsys.readouterr().err.splitlines()[-1] == (
            "ce: hint: for this once: set -a; . ./.env; set +a; ce run --container-mounts=/a:/b"
            f" {names} demo -- ls"
        )
    assert main(["run", "-v", "/a:/b", "-p", "80:80", "demo", "--", "ls"]) == 2
    assert "ce: hint" not in capsys.readouterr().err


def test_an_option_after_the_name_is_not_taken_for_the_command(capsys: Capture) -> None:
    for words in (["-e", "A=B", "ls"], ["--pull", "never", "--", "ls"]):
        message = f"run: '{words[0]}': options go before the name"
        assert refused(capsys, "run", "demo", *words) == message


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-it", "--rm", "./e.toml", "--", "echo", "--", "-v"], 0, "-- -v\n"),
        (["--environment=./e.toml", "--", "sh", "-c", "echo $1", "-", "-v"], 0, "-v\n"),
        (["./e.toml", "--", "-x"], 127, "ce: error: -x: command not found\n"),
    ],
)
def test_what_follows_the_dashes_is_the_command_whatever_it_looks_like(
    installed: Installed, words: list[str], code: int, said: str
) -> None:
    (installed.home / "e.toml").write_text('image = ""\n')
    done = installed.ce("run", *words)
    assert done.returncode == code
    assert said in (done.stdout, f"{done.stderr.splitlines()[-1]}\n")


@pytest.mark.parametrize("verb", ["run", "shell"])
def test_without_a_terminal_there_is_no_shell(installed: Installed, verb: str) -> None:
    (installed.home / "e.toml").write_text('image = ""\n')
    done = installed.ce(verb, "-it", "./e.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"ce: error: {verb}: without a command it opens a shell, which needs a terminal\n"
        "ce: hint: ce run ./e.toml -- COMMAND\n"
    )


def test_an_environment_is_needed(capsys: Capture) -> None:
    assert refused(capsys, "run") == "run: no environment is given"
    assert refused(capsys, "run", "--", "true") == "run: no environment is given"
    for option in ("--container-name=x", "--container-writable"):
        assert refused(capsys, "run", option, "--", "true", "-x") == "run: no environment is given"
    message = "shell: expected either an environment or --image REF"
    assert refused(capsys, "shell") == message
    assert refused(capsys, "shell", "--image", "x", "demo") == message
    assert refused(capsys, "run", "--image", "x", "--environment", "demo", "ls").startswith(
        "run: either --environment or --image"
    )


def test_gpus_are_the_environments(installed: Installed) -> None:
    (installed.home / "e.toml").write_text('image = ""\n')
    done = installed.ce("run", "--gpus", "all", "./e.toml", "--", "true")
    assert done.returncode == 0
    assert done.stderr.splitlines()[0] == (
        "ce: warning: --gpus: no effect; the GPUs of an environment are"
        ' devices = ["nvidia.com/gpu=all"] in its file'
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            "ubuntu:24.04",
            "ce list shows the environments; for the image: ce run --image ubuntu:24.04 -- COMMAND",
        ),
        ("117", "ce list shows the environments; for a shell in a running job: ce exec 117"),
        (
            "ubuntu",
            "ce list shows the environments; for the image: ce run --image ubuntu -- COMMAND",
        ),
        ("trian", "did you mean 'train'?"),
    ],
)
def test_the_name_of_an_image_gets_both_ways(installed: Installed, name: str, hint: str) -> None:
    (installed.home / ".edf").mkdir()
    (installed.home / ".edf/train.toml").write_text('image = ""\n')
    done = installed.ce("run", name, "--", "true")
    assert done.returncode == 125
    assert done.stderr.splitlines()[1] == f"ce: hint: {hint}"


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("", "--image: the name of the image is empty"),
        ("A B", "--image: image: 'A B' is not a valid name in a registry"),
        ("./no.sqsh", "--image: image: '{home}/no.sqsh': no such file or directory"),
    ],
)
def test_a_wrong_image_is_the_options_error(installed: Installed, image: str, message: str) -> None:
    done = installed.ce("run", "--image", image, "--", "true")
    assert (done.returncode, done.stdout) == (125, "")
    expected = message.format(home=installed.home)
    assert done.stderr.splitlines()[0] == f"ce: error: {expected}"


@pytest.mark.parametrize(
    ("variables", "starter"),
    [
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, "mpirun"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "mpirun"),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "PMI_RANK": "0"}, "srun"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, None),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, None),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, None),
    ],
)
def test_the_first_of_several_containers_warns_that_each_rank_has_its_own(
    installed: Installed, variables: dict[str, str], starter: str | None
) -> None:
    done = installed.ce("run", "nowhere", "--", "true", env=variables)
    warned = f"ce: warning: this {starter} starts ce run once per " in done.stderr
    assert warned == (starter is not None)
    assert done.stderr.count("ce: warning: ") == int(warned)


def test_an_invalid_pull_policy_is_refused_for_a_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    image = squashfs.make(tmp_path / "i.sqsh", {"etc/x": ""})
    monkeypatch.setenv("CE_PULL", "nevr")
    assert main(["run", "--image", str(image), "--", "true"]) == 125
    assert "CE_PULL=nevr: must be one of age, always, missing, never" in capsys.readouterr().err


def test_nothing_of_ours_is_writable_for_all_but_the_command_has_its_umask(
    installed: Installed,
) -> None:
    (installed.home / "e.toml").write_text('image = ""\n')
    ce = f"{installed.prefix}/bin/ce"
    script = f"umask 000; {ce} init x --image ubuntu:1; {ce} run ./e.toml -- sh -c umask"
    done = installed.run("sh", "-c", script)
    assert done.stdout.splitlines()[-1] == "0000", done.stderr
    made = installed.home / ".edf/x.toml"
    for path in (made, made.parent):
        assert path.stat().st_mode & 0o777 == (0o664 if path.is_file() else 0o775), path
