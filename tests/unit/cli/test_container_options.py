"""`ce run`, `shell`, `plan` and `validate` take the options of pyxis as srun does."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from container_engine.cli.main import main
from tests.unit import squashfs
from tests.unit.cli.conftest import Installed

Capture = pytest.CaptureFixture[str]


def test_options_are_planned_and_validated_without_a_file(installed: Installed) -> None:
    squashfs.make(installed.home / "i.sqsh", {"etc/x": ""})
    options = [
        "--container-image=./i.sqsh",
        "--container-mounts",
        "/nowhere/a:/b:ro",
        "--container-writable",
    ]
    plan = json.loads(installed.ce("plan", "--json", *options).stdout)
    assert (plan["writable"], plan["writable_from"]) == (True, "--container-writable")
    assert plan["mounts"][0]["from"] == "--container-mounts"
    again = installed.quick(*options[:1], "--container-mounts=/nowhere/a:/b:ro", *options[3:], "--")
    assert json.loads(again.stdout) == plan
    assert installed.ce("validate", *options).stdout == (
        "--container-image=./i.sqsh --container-mounts=/nowhere/a:/b:ro --container-writable:"
        " valid;"
        " 1 file is not on this host (--check-files shows which)\n"
    )


def test_the_planner_of_the_plugin_reads_variables(installed: Installed) -> None:
    squashfs.make(installed.home / "i.sqsh", {"etc/x": ""})
    env = {"PYXIS_CONTAINER_MOUNTS": "/a:b", "PYXIS_CONTAINER_IMAGE": "./i.sqsh"}
    words = ["plan", "--json", "--for", "srun", "--container-variables", "--"]
    assert installed.ce(*words, env=env).stderr.startswith(
        "ce: error: PYXIS_CONTAINER_MOUNTS: '/a:b': the destination 'b' is not an absolute path\n"
    )
    assert installed.ce("plan", "--container-image=./i.sqsh", env=env).returncode == 0


def test_options_lie_over_a_name(installed: Installed) -> None:
    (installed.home / "e.toml").write_text('image = ""\n')
    squashfs.make(installed.home / "i.sqsh", {"etc/x": ""})
    done = installed.ce("plan", "--json", "--container-image=./i.sqsh", "./e.toml")
    assert json.loads(done.stdout)["image"]["from"] == "--container-image"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan"], "plan: NAME is missing"),
        (["validate"], "validate: NAME is missing"),
        (
            ["plan", "--container-mounts=/a"],
            "--container-mounts: there is no container to apply it to",
        ),
        (
            ["run", "--container-name=x/y", "--container-image=y", "--", "true"],
            "--container-name: annotations.com.ce.container_name: expected NAME[:auto|create|exec|"
            "no_exec], a name of letters, digits, '.', '_' and '-', found 'x/y'",
        ),
    ],
)
def test_what_is_missing_or_refused_is_named(
    words: list[str], message: str, capsys: Capture
) -> None:
    assert main(words) != 0
    assert capsys.readouterr().err.startswith(f"ce: error: {message}\n")


def test_a_command_follows_the_image_of_an_option(installed: Installed) -> None:
    (installed.home / "e.toml").write_text('image = ""\n')
    for words in (["--", "echo", "-x"], ["echo", "-x"]):
        done = installed.ce("run", "--container-image=", *words)
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr.startswith("ce: error: --container-image: its value is empty\n")
    done = installed.ce("run", "--container-writable", "./e.toml", "--", "echo", "-x")
    assert (done.returncode, done.stdout) == (0, "-x\n")
    done = installed.ce("run", "--container-image=./i.sqsh", "./e.toml", "--", "echo")
    assert done.returncode == 2
    assert done.stderr == (
        "ce: error: run: './e.toml': --container-image takes the place of an environment\n"
        "ce: hint: for both: ce run --container-image=REF --environment=./e.toml -- COMMAND\n"
    )
    done = installed.ce("run", "--container-writable", "--environment=./e.toml", "echo", "-x")
    assert (done.returncode, done.stdout) == (0, "-x\n")


def test_a_file_says_the_same_as_options(installed: Installed) -> None:
    squashfs.make(installed.home / "i.sqsh", {"etc/x": ""})
    env = {"TOKEN": "a$b"}
    options = [
        *(
            "--container-image=./i.sqsh",
            r"--container-mounts=./d:./e:ro,/a$b,/c\:\,d:/f",
            "--container-env=TOKEN",
        ),
        *("--container-mount-home", "--container-entrypoint", "--container-remap-root"),
        "--container-workdir=/w",
    ]
    done = installed.ce("init", "./e.toml", "--from-options", *options, env=env)
    path = installed.home / "e.toml"
    next_ = f"ce: next: edit it, ce validate {path}, srun --environment={path} COMMAND\n"
    assert (done.returncode, done.stderr) == (0, next_)
    assert (installed.home / "e.toml").read_text() == (
        "# An environment for 'srun --environment=./e.toml' and 'ce run ./e.toml -- COMMAND',"
        " from options.\n"
        "# 'ce explain ./e.toml' shows which values are used and why.\n"
        "entrypoint = true\n"
        f'image = "{installed.home}/i.sqsh"\n'
        "mounts = [\n"
        '  "${HOME}:/root",\n'
        f'  "{installed.home}/d:/e:ro",\n'
        '  "/a$$b:/a$$b",\n'
        '  "/c\\\\:,d:/f",\n'
        "]\n"
        'workdir = "/w"\n'
        "writable = false\n"
        "\n[annotations]\n"
        '"com.ce.root_remap" = "true"\n'
        "\n[env]\n"
        'HOME = "/root"\n'
        'TOKEN = "${TOKEN}"\n'
    )
    by_options, by_file = (
        json.loads(installed.ce("plan", "--json", *words, env=env).stdout)
        for words in (options, ["./e.toml"])
    )
    assert without_origins(by_file) == without_origins(by_options)


def test_a_file_without_a_path_is_not_looked_for_in_a_registry(installed: Installed) -> None:
    done = installed.ce("plan", "--container-image=x.sqsh", "--pull=never")
    assert "'x.sqsh' is the name of an image in a registry, not a path" in done.stderr
    assert "write './x.sqsh' for a file" in done.stderr
    squashfs.make(installed.home / "x.sqsh", {"etc/x": ""})
    done = installed.ce("plan", "--container-image=x.sqsh")
    assert "ce: error: --container-image: image: 'x.sqsh': a reference to a reg" in done.stderr
    assert "ce: hint: did you mean './x.sqsh'?" in done.stderr


def test_a_file_made_of_options_lacks_a_variable_that_is_not_set(installed: Installed) -> None:
    squashfs.make(installed.home / "i.sqsh", {"etc/x": ""})
    options = ["--container-image=./i.sqsh", "--container-env=SET,NONE", "--container-env=EMPTY"]
    env = {"SET": "1", "EMPTY": ""}
    done = installed.ce("init", "./e.toml", "--from-options", *options, env=env)
    assert done.stderr.splitlines()[0] == (
        "ce: warning: --container-env: NONE: not set now, and not in the file"
    )
    assert '[env]\nEMPTY = "${EMPTY}"\nSET = "${SET}"\n' in (installed.home / "e.toml").read_text()


def without_origins(plan: dict[str, Any]) -> dict[str, Any]:
    """Return what a plan does, without the places that ask for it."""
    kept = {key: plan[key] for key in ("workdir", "writable", "annotations", "entrypoint")}
    kept["mounts"] = [{**mount, "from": ""} for mount in plan["mounts"]]
    kept["env"] = [{**entry, "from": ""} for entry in plan["env"]]
    return kept | {"image": plan["image"]["path"], "root": plan["settings"]["root_remap"]}


def test_options_that_are_refused_write_no_file(installed: Installed) -> None:
    for words in (["--from-options"], ["--from-options", "--container-name=x"]):
        done = installed.ce("init", "./e.toml", *words)
        assert done.returncode == 1
        assert "ce: error: --container-" in done.stderr
    done = installed.ce("init", "./e.toml", "--container-image=x")
    assert "options of pyxis need --from-options" in done.stderr
    assert not (installed.home / "e.toml").exists()


def test_a_file_without_its_directory_is_asked_about(installed: Installed) -> None:
    squashfs.make(installed.home / "i.sqsh", {"etc/x": ""})
    commands = (
        ("validate", "--container-image=i.sqsh"),
        ("import", "i.sqsh", "mine"),
        ("pull", "i.sqsh"),
        ("inspect", "i.sqsh"),
    )
    for words in commands:
        done = installed.ce(*words)
        assert done.returncode == 1, words
        assert "'i.sqsh': a reference to a registry" in done.stderr, done.stderr
        assert "ce: hint: did you mean './i.sqsh'?\n" in done.stderr, done.stderr


def test_an_image_that_this_host_lacks_is_left_to_the_nodes_only_without_a_doubt(
    installed: Installed, prefix: Path
) -> None:
    squashfs.make(installed.home / "image.sqsh", {"etc/x": ""})
    done = installed.ce("plan", "--container-image=./none.sqsh")
    assert done.returncode == 0
    assert "each node looks for it" in done.stderr
    done = installed.ce("plan", "--container-image=./imgae.sqsh")
    assert done.returncode == 1
    assert f"did you mean '{installed.home}/image.sqsh'?" in done.stderr
    done = installed.ce("plan", "--container-image=./none.sqsh", "--container-entrypoint")
    assert done.returncode == 1
    assert "and its entrypoint is read where you submit" in done.stderr
    place = prefix / "etc/container-engine"
    place.mkdir(parents=True)
    try:
        (place / "config.toml").write_text('policy.denied_images = ["/other"]\n')
        done = installed.ce("plan", "--container-image=./none.sqsh")
    finally:
        shutil.rmtree(place)
    assert done.returncode == 1
    assert "and the site has rules for images" in done.stderr
