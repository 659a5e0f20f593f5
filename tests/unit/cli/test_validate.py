"""`ce validate` as its user sees it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.cli.main import main
from tests.unit import squashfs

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with one good, one doubtful, one bad and one partial environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("EDF_PATH", raising=False)
    for name, text in {
        "good": 'image = "ubuntu:24.04"\nmounts = ["./data:/data"]\n',
        "doubtful": 'image = "ubuntu:24.04"\nmount = []\n',
        "bad": 'image = "ubuntu:24.04"\nwritable = "no"\nworkdir = "x"\n',
        "partial": '[env]\nA = "1"\n',
    }.items():
        (tmp_path / f"{name}.toml").write_text(text)
    (tmp_path / "data").mkdir()
    return tmp_path


def validate(*words: str) -> int:
    return main(["validate", *words])


def test_a_valid_environment_gets_one_line_on_stdout(capsys: Capture) -> None:
    assert validate("good.toml") == 0
    assert capsys.readouterr() == ("good.toml: valid\n", "")


def test_files_that_this_host_lacks_are_counted_beside_the_verdict(
    here: Path, capsys: Capture
) -> None:
    (here / "data").rmdir()
    assert validate("good.toml") == 0
    said = "good.toml: valid; 1 file is not on this host (--check-files shows which)\n"
    assert capsys.readouterr() == (said, "")


def test_a_partial_environment_is_valid_as_a_base(capsys: Capture) -> None:
    assert validate("partial.toml") == 0
    assert capsys.readouterr() == (
        "partial.toml: valid, but only as a base for others (no image)\n",
        "",
    )


def test_every_problem_of_every_environment_is_reported(here: Path, capsys: Capture) -> None:
    assert validate("bad.toml", "good.toml", "doubtful.toml", "none") == 1
    assert capsys.readouterr() == (
        "bad.toml: not valid\ngood.toml: valid\ndoubtful.toml: valid, 1 warning\nnone: not valid\n",
        f"ce: error: {here}/bad.toml:2: writable: expected true or false, found the string "
        '"no"\n'
        "ce: hint: write writable = false, without quotes\n"
        f"ce: error: {here}/bad.toml:3: workdir: 'x' is not an absolute path\n"
        "ce: hint: a relative path begins with './'\n"
        "ce: see: ce help edf-value\n"
        f"ce: warning: {here}/doubtful.toml:2: unknown key 'mount' has no effect, did you mean"
        " 'mounts'?\n"
        f"ce: error: none: no environment 'none' in {here}/.edf, /etc/edf\n"
        "ce: hint: check the name (ce list shows all of them); a path begins with / or ./ or "
        "ends in .toml\n"
        "ce: see: ce help environment-not-found\n",
    )


def test_keys_of_other_tools_are_answered_with_what_to_do(here: Path, capsys: Capture) -> None:
    text = 'image = "ubuntu:24.04"\nGPUs = "all"\nports = [80]\n[network]\nname = "x"\n'
    (here / "docker.toml").write_text(text)
    assert validate("docker.toml") == 0
    assert capsys.readouterr() == (
        "docker.toml: valid, 3 warnings\n",
        f"ce: warning: {here}/docker.toml:2: unknown key 'GPUs' has no effect\n"
        'ce: hint: write devices = ["nvidia.com/gpu=all"]\n'
        f"ce: warning: {here}/docker.toml:3: unknown key 'ports' has no effect\n"
        "ce: hint: the container has the host's network: every port is open as it is\n"
        f"ce: warning: {here}/docker.toml:4: unknown key 'network' has no effect\n"
        "ce: hint: the container has the host's network\n",
    )


def test_strict_makes_errors_of_warnings(here: Path, capsys: Capture) -> None:
    assert validate("--strict", "doubtful.toml", "good.toml") == 1
    assert capsys.readouterr() == (
        "doubtful.toml: not valid\ngood.toml: valid\n",
        f"ce: error: {here}/doubtful.toml:2: unknown key 'mount' has no effect, did you mean"
        " 'mounts'?\n"
        "ce: hint: correct its spelling or remove it; ce schema edf prints all keys\n"
        "ce: see: ce help edf-unknown-key\n",
    )


def test_json_has_everything_on_stdout(here: Path, capsys: Capture) -> None:
    assert validate("--json", "doubtful.toml", "none") == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    document = json.loads(captured.out)
    doubtful, missing = document["environments"]
    assert (document["version"], document["valid"]) == (1, False)
    assert doubtful == {
        "name": "doubtful.toml",
        "valid": True,
        "image": "ubuntu:24.04",
        "files": [f"{here}/doubtful.toml"],
        "problems": [
            {
                "severity": "warning",
                "file": f"{here}/doubtful.toml",
                "line": 2,
                "key": "",
                "message": "unknown key 'mount' has no effect, did you mean 'mounts'?",
                "hint": None,
                "excerpt": None,
                "see": "edf-unknown-key",
            }
        ],
    }
    assert (missing["valid"], missing["image"], missing["files"]) == (False, None, [])


def test_files_are_looked_for_only_on_request(here: Path, capsys: Capture) -> None:
    (here / "all.toml").write_text(
        'image = "./none.sqsh"\n'
        'mounts = ["tmpfs:/t", "/nowhere", "/tmp", "/x/${SLURM_JOB_ID}:/y", "/i.sqsh:/i:sqsh"]\n'
        'devices = ["/dev/null", "/dev/none", "nvidia.com/gpu=all"]\n'
    )
    assert validate("all.toml") == 0
    capsys.readouterr()
    assert validate("--check-files", "all.toml") == 1
    where, why = f"ce: error: {here}/all.toml", "does not exist"
    assert capsys.readouterr().err == (
        f"{where}:1: image: '{here}/none.sqsh': no such file or directory\n"
        "ce: hint: check the path; was it purged from scratch? "
        "ce import FROM -o FILE creates it again\n"
        f"{where}:2: mounts: mount source '/nowhere': {why}\n"
        "ce: hint: create it there, or mount a path that exists on every node\n"
        f"{where}:2: mounts: mount source '/i.sqsh': {why}\n"
        f"{where}:3: devices: device '/dev/none': {why}\n"
        "ce: hint: choose nodes that have it (srun --constraint, --gres), or remove the line\n"
        "ce: see: ce help image-file-not-found mount-source-missing device-missing\n"
    )


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (
            "dir/x.sqsh",
            "ce: warning: {file}:1: image: 'dir/x.sqsh' is the name of an image in a registry, "
            "not a path\nce: hint: write './dir/x.sqsh' for a file\n",
        ),
        (
            "Ubuntu",
            "ce: error: {file}:1: image: 'Ubuntu' has upper-case letters, which names "
            "in a registry never have\n"
            "ce: hint: a path begins with / or ./; a reference is REGISTRY/NAME:TAG\n"
            "ce: see: ce help image-reference\n",
        ),
        ("", "ce: warning: {file}:1: image: empty: no container, this runs on the host\n"),
    ],
)
def test_an_image_is_judged_by_its_name(here: Path, capsys: Capture, image: str, said: str) -> None:
    file = here / "x.toml"
    file.write_text(f'image = "{image}"\n')
    assert validate("x.toml") == int("error" in said)
    assert capsys.readouterr().err == said.format(file=file)


def test_a_name_with_odd_bytes_is_no_reason_to_fail(capsys: Capture) -> None:
    assert validate("\udcff.toml") == 1
    assert "no such file" in capsys.readouterr().err


def test_a_syntax_error_shows_the_line(here: Path, capsys: Capture) -> None:
    (here / "x.toml").write_text("writable = True\n")
    assert validate("x.toml") == 1
    assert capsys.readouterr().err == (
        f"ce: error: {here}/x.toml:1: 'True' is not a TOML value\n"
        "        1 | writable = True\n"
        "          |            ^\n"
        "ce: hint: write writable = true\n"
        "ce: see: ce help edf-syntax\n"
    )


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            "",
            "ce: warning: {here}/x.toml:1: entrypoint: the image has an entrypoint, /bin/run -v, "
            "and no file says whether to run it\n"
            "ce: hint: write entrypoint = true to run it before the tasks, or entrypoint = false\n",
        ),
        ("entrypoint = true\n", ""),
        ("entrypoint = false\n", ""),
    ],
)
def test_an_entrypoint_that_nobody_decided_on_is_reported(
    here: Path, capsys: Capture, need_tool: Callable[[str], str], key: str, said: str
) -> None:
    need_tool("mksquashfs")
    squashfs.make(here / "i.sqsh", {})
    (here / "i.sqsh.json").write_text('{"config": {"Entrypoint": ["/bin/run", "-v"]}}')
    (here / "x.toml").write_text(f'image = "./i.sqsh"\n{key}')
    assert validate("x.toml") == 0
    assert capsys.readouterr().err == said.format(here=here)


def test_a_name_cannot_fake_a_verdict(here: Path, capsys: Capture) -> None:
    (here / "good.toml").write_text('image = "ubuntu:24.04"\n')
    assert validate("bad: valid\ngood", "./good.toml") == 1
    assert capsys.readouterr().out == "bad: valid\\ngood: not valid\n./good.toml: valid\n"


def test_a_key_file_is_named_by_the_annotation_that_the_site_gave_the_hook(
    here: Path, capsys: Capture
) -> None:
    (here / "config.toml").write_text(f'hook_catalog = ["{here}/hooks.d"]')
    (here / "hooks.d/ssh").mkdir(parents=True)
    (here / "hooks.d/ssh/hook.toml").write_text('annotation = "org.login"')
    (here / "e.toml").write_text(
        'image = "ubuntu:24.04"\n[annotations]\norg.login.enabled = "true"\n'
        'org.login.authorize_ssh_key = "/nowhere.pub"\n'
    )
    assert main(["--site", str(here / "config.toml"), "validate", "e.toml"]) == 1
    where = f"ce: error: {here}/e.toml:4: org.login.authorize_ssh_key: "
    assert f"{where}'/nowhere.pub': does not exist\n" in capsys.readouterr().err


def test_a_squashfs_file_that_is_mounted_as_a_plain_file_is_noticed_by_its_content(
    here: Path, capsys: Capture
) -> None:
    squashfs.make(here / "data.img", {"x": "y"})
    (here / "packed.toml").write_text('image = "ubuntu:24.04"\nmounts = ["./data.img:/data"]\n')
    assert validate("packed.toml") == 0
    assert capsys.readouterr() == (
        "packed.toml: valid, 1 warning\n",
        f"ce: warning: {here}/packed.toml:2: mounts: '{here}/data.img' is a SquashFS file, mounted"
        f" as a plain file\nce: hint: to see what is in it: {here}/data.img:/data:sqsh\n",
    )


def test_a_misspelt_image_is_the_line_to_correct(here: Path, capsys: Capture) -> None:
    (here / "typo.toml").write_text('imgae = "ubuntu:24.04"\n')
    assert main(["plan", "typo.toml"]) == 1
    said = capsys.readouterr().err
    assert f"ce: hint: is line 1 of {here}/typo.toml, which has no effect, meant?\n" in said
    assert "host" not in said


def test_an_environment_that_edf_path_leaves_out_is_found_in_the_hint(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / ".edf").mkdir()
    (here / ".edf/mine.toml").write_text('image = "ubuntu:24.04"\n')
    monkeypatch.setenv("EDF_PATH", "/nonexistent")
    assert validate("mine") == 1
    hint = f"ce: hint: 'mine' is in {here}/.edf, which EDF_PATH, set in your shell, leaves out\n"
    assert hint in capsys.readouterr().err
