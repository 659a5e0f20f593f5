"""`ce explain` as its user sees it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.cli.main import main
from tests.unit import squashfs

Capture = pytest.CaptureFixture[str]
BASE = """\
image = "ubuntu:24.04"
mounts = ["/data:/data", "/b"]
devices = ["/dev/null"]
startup = ["echo $$HOME"]
writable = false
[env]
A = "base"
SAME = "1"
[annotations]
com.hooks.ssh.enabled = true
com.hooks.aws_ofi_nccl.enabled = true
"""
TOP = """\
base_environment = "./base.toml"
mounts = ["${NOPE:-/other}:/data:ro"]
devices = ["/dev/null"]
workdir = "/work/${SLURM_JOB_ID}"
image = "${EDF_DIR}/i.sqsh"
[env]
A = "top $X"
B = "${image:FROM}"
SAME = "1"
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("X", "1")
    monkeypatch.setenv("PLAIN", "host")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    for name in ("A", "B", "NOPE", "SLURM_JOB_ID", "NCCL_PROTO"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "top.toml").write_text(TOP)
    return tmp_path


def explained(capsys: Capture, here: Path, *words: str) -> str:
    assert main(["explain", "top.toml", *words]) == 0
    return capsys.readouterr().out.replace(f"{here}/", "")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (
            "env.A",
            'env.A = "top 1"\n'
            '    from top.toml:7, written "top $X"\n'
            '    ${X} is "1", from the environment\n'
            '    overrides "base" from base.toml:7\n',
        ),
        (
            "image",
            'image = "{here}/i.sqsh"\n'
            '    from top.toml:5, written "${EDF_DIR}/i.sqsh"\n'
            '    ${EDF_DIR} is "{here}", from the path of the file\n'
            '    overrides "ubuntu:24.04" from base.toml:1\n',
        ),
        (
            "mounts[0]",
            'mounts[0] = "/other:/data:ro"\n'
            '    from top.toml:2, written "${NOPE:-/other}:/data:ro"\n'
            "    ${NOPE} is not defined; the text after ':-' is used\n"
            '    overrides "/data:/data" from base.toml:2\n',
        ),
        (
            "devices",
            'devices[0] = "/dev/null"\n    from base.toml:3\n    repeated in top.toml:3\n',
        ),
        ("env.SAME", 'env.SAME = "1"\n    from top.toml:9\n    same as in base.toml:8\n'),
        (
            "startup",
            'startup[0] = "echo $HOME"\n    from base.toml:4, written "echo $$HOME"\n',
        ),
        (
            "workdir",
            'workdir = "/work/${SLURM_JOB_ID}"\n'
            '    from top.toml:4, written "/work/${SLURM_JOB_ID}"\n'
            "    ${SLURM_JOB_ID} is known on the node only\n",
        ),
        ("writable", "writable = false\n    from base.toml:5\n"),
        ("entrypoint", "entrypoint = false\n    default\n"),
        (
            "com.hooks.ssh",
            'annotations.com.hooks.ssh.enabled = "true"\n    from base.toml:10\n',
        ),
        ("base_environment", ""),
    ],
)
def test_a_value_is_explained(here: Path, capsys: Capture, key: str, text: str) -> None:
    text = text.replace("{here}", str(here))
    assert explained(capsys, here, key) == text.replace(f"{here}/", "")


def test_without_a_key_everything_is_explained_once(here: Path, capsys: Capture) -> None:
    lines = explained(capsys, here).splitlines()
    values = [line.split(" ")[0] for line in lines if not line.startswith(" ")]
    assert values == [
        "annotations.com.hooks.aws_ofi_nccl.enabled",
        "annotations.com.hooks.ssh.enabled",
        "devices[0]",
        "env.A",
        "env.B",
        "env.SAME",
        "image",
        "mounts[0]",
        "mounts[1]",
        "startup[0]",
        "workdir",
        "writable",
        "entrypoint",
    ]


def test_a_base_that_counts_again_at_its_second_place_wins_there(
    here: Path, capsys: Capture
) -> None:
    for name, text in {
        "common": 'workdir = "/common"\n',
        "a": 'base_environment = "./common.toml"\nworkdir = "/a"\n',
        "b": 'base_environment = "./common.toml"\n',
        "top": 'base_environment = ["./a.toml", "./b.toml"]\n',
    }.items():
        (here / f"{name}.toml").write_text(text)
    assert explained(capsys, here, "workdir") == (
        'workdir = "/common"\n    from common.toml:1\n    overrides "/a" from a.toml:2\n'
    )


def test_an_unknown_key_gets_the_nearest_one(capsys: Capture) -> None:
    assert main(["explain", "top.toml", "workdri"]) == 1
    assert capsys.readouterr().err.endswith(
        "ce: error: explain: no file sets 'workdri'\nce: hint: did you mean 'workdir'?\n"
    )


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("B", ['B = "inside"', '    EDF: "inside", top.toml:8']),
        ("FROM", ['FROM = "inside"', "    EDF: not set"]),
        ("PLAIN", ['PLAIN = "host"', '    host: "host", as the job has it']),
        (
            "LC_ALL",
            [
                "LC_ALL is not set",
                '    host: "C.UTF-8" here, never passed on: it means nothing in another image',
            ],
        ),
        (
            "NCCL_PROTO",
            [
                'NCCL_PROTO = "^LL128"',
                '    hook: "^LL128", hook aws_ofi_nccl, profile slingshot-2026.06, base.toml:11',
            ],
        ),
        ("SLURM_JOB_ID", ["SLURM_JOB_ID: always from Slurm, which sets it for each task"]),
    ],
)
def test_every_source_of_a_variable_is_named(
    here: Path, capsys: Capture, need_tool: Callable[[str], str], name: str, lines: list[str]
) -> None:
    need_tool("mksquashfs")
    need_tool("unsquashfs")
    squashfs.make(here / "i.sqsh", {"etc/environment": "FROM=inside\n"})
    said = explained(capsys, here, "--env", name).splitlines()
    assert said[0] == lines[0]
    assert set(lines) <= set(said)


def test_what_an_automatic_hook_does_in_few_steps_is_no_part_of_the_value(
    here: Path, capsys: Capture
) -> None:
    value, *sources = explained(capsys, here, "--env", "PATH").splitlines()
    assert "/.container-engine/slurm" not in value
    (hook,) = (line for line in sources if "hook slurm" in line)
    assert "only in steps with CE_BATCH_SCRIPT" in hook


def test_an_image_that_is_not_there_is_no_reason_to_fail(here: Path, capsys: Capture) -> None:
    said = explained(capsys, here, "--env", "B")
    assert 'B = "${image:FROM}"\n' in said
    assert "    image: cannot be read here\n" in said


def test_a_bad_environment_is_refused_with_all_its_problems(here: Path, capsys: Capture) -> None:
    (here / "top.toml").write_text("image = 1\nworkdir = 'x'\n")
    assert main(["explain", "top.toml"]) == 1
    assert capsys.readouterr().err.count("ce: error: ") == 2


SECRETS = """\
image = "ubuntu:24.04"
startup = ["export API_KEY=written; true"]
mounts = ["/data/${MY_TOKEN}:/data"]
[env]
HF_TOKEN = "${MY_TOKEN}"
WRITTEN_PASSWORD = "as it is"
PLAIN = "${MY_TOKEN}"
"""


def test_secrets_are_shown_only_when_asked_for(
    capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "from the host")
    (here / "top.toml").write_text(SECRETS)
    (here / "other.toml").write_text(SECRETS.replace("as it is", "another").replace("/data:", "/:"))
    everything = [
        explained(capsys, here),
        *(explained(capsys, here, "--env", name) for name in ("HF_TOKEN", "WRITTEN_PASSWORD")),
    ]
    assert main(["diff", "top.toml", "other.toml"]) == 1
    everything.append(capsys.readouterr().out)
    for text in everything:
        assert "(hidden)" in text
        assert not [said for said in ("from the host", "as it is", "written;") if said in text]
    assert 'from top.toml:5, written "${MY_TOKEN}"' in everything[0]
    shown = explained(capsys, here, "--show-secrets")
    assert shown.count('"from the host"') >= 3
    assert '"as it is"' in shown
