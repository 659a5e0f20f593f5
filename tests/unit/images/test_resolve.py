"""Metadata of an image besides its files."""

import json
import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.images.resolve import from_file, refuse_bare_file, stacked
from container_engine.images.squashfs import (
    DEFAULT_PATH,
    config_from_document,
    judge_config,
    parse_environment,
    parse_rc,
)
from tests.unit import squashfs

# as enroot writes it
RC = """\
# maintainer somebody

mkdir -p "/opt/app" 2> /dev/null
cd "/opt/app" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec '/entry.sh' "$@"
else
    exec '/entry.sh' 'bash'
fi
"""


@pytest.fixture
def image(tmp_path: Path, need_tool: Callable[[str], str]) -> Path:
    need_tool("mksquashfs")
    need_tool("unsquashfs")
    files = {"etc/environment": "PATH=/opt/app/bin\nA=b=c d\n", "etc/rc": RC}
    return squashfs.make(tmp_path / "i.sqsh", files)


def test_the_configuration_beside_the_file_counts_alone(image: Path) -> None:
    run = {"Env": ["A=1", "B=x=y"], "Entrypoint": ["/e", "f"], "WorkingDir": "/w", "Cmd": ["c"]}
    beside = Path(f"{image}.json")
    beside.write_text(json.dumps({"config": run, "architecture": "amd64"}))
    found = from_file("./i.sqsh", str(image), os.environ).image
    assert found.env == {"A": "1", "B": "x=y", "PATH": DEFAULT_PATH}
    assert (found.entrypoint, found.workdir, found.source) == (("/e", "f"), "/w", str(beside))


def test_what_enroot_left_in_an_image_is_found(image: Path) -> None:
    found = from_file("i", str(image), os.environ).image
    assert found.env == {"PATH": "/opt/app/bin", "A": "b=c d"}
    assert (found.workdir, found.entrypoint) == ("/opt/app", ("/bin/sh", "/etc/rc"))
    assert found.source == f"{image} (/etc/environment, /etc/rc)"


@pytest.mark.parametrize("member", ["environment", "rc"])
def test_a_file_in_an_image_that_has_no_end_is_not_read_whole(
    tmp_path: Path, need_tool: Callable[[str], str], member: str
) -> None:
    """A file of a few kilobytes can hold any number of zeros."""
    need_tool("mksquashfs")
    need_tool("unsquashfs")
    tree = tmp_path / "tree"
    (tree / "etc").mkdir(parents=True)
    with open(tree / "etc" / member, "wb") as file:
        file.truncate(64 << 20)
    image = tmp_path / "i.sqsh"
    argv = ["mksquashfs", str(tree), str(image), "-quiet", "-no-progress", "-b", "1M"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=f"'/etc/{member}' in the image is larger than 1 MiB"):
        from_file("i", str(image), os.environ)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10


def test_an_image_without_a_configuration_gets_the_usual_path(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    need_tool("mksquashfs")
    need_tool("unsquashfs")
    path = squashfs.make(tmp_path / "i.sqsh", {"a": "b"})
    resolved = from_file("i", str(path), os.environ)
    found = resolved.image
    assert (found.env, found.workdir, found.entrypoint) == ({"PATH": DEFAULT_PATH}, None, ())
    assert (found.source, resolved.notices) == ("", ())


def test_without_unsquashfs_a_notice_says_that_the_environment_is_unknown(image: Path) -> None:
    resolved = from_file("i", str(image), {**os.environ, "PATH": "/none"})
    assert resolved.notices == (
        "the image's own environment is unknown: cannot start unsquashfs: "
        "no such file or directory",
    )


def test_all_that_was_looked_at_is_named(image: Path) -> None:
    assert from_file("i", str(image), os.environ).consulted == (
        str(image),
        f"{image}.json",
        f"{image}.sha256",
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not valid JSON: EOF while parsing a value at line 1 column 0"),
        ("[]", "must be an object"),
        ('{"config": {"Env": "A=1"}}', "config.Env: must be an array"),
    ],
)
def test_a_file_beside_that_is_no_configuration_is_an_error(
    image: Path, text: str, why: str
) -> None:
    Path(f"{image}.json").write_text(text)
    with pytest.raises(UserError) as caught:
        from_file("i", str(image), os.environ)
    assert caught.value.message == f"{image}.json: {why}"


@pytest.mark.parametrize("text", ["{}", '{"config": null}', '{"config": {"Env": null}}'])
def test_a_configuration_may_leave_everything_out(text: str) -> None:
    assert config_from_document(text.encode(), "f").env == {"PATH": DEFAULT_PATH}


def test_a_bare_file_name_gets_a_hint(image: Path) -> None:
    with pytest.raises(UserError) as caught:
        refuse_bare_file("i.sqsh", str(image.parent))
    assert caught.value.hint == "did you mean './i.sqsh'?"


def test_an_environment_file_may_have_quotes_comments_and_export() -> None:
    text = "# c\nA=1\nexport B='two words'\nC=\"x\"\nD=\nnot a line\nE='a'b\n"
    assert parse_environment(text) == {"A": "1", "B": "two words", "C": "x", "D": "", "E": "'a'b"}


def test_a_start_script_that_only_executes_the_command_is_no_entrypoint() -> None:
    assert parse_rc('cd "/" && unset OLDPWD || exit 1\nexec "$@"\n') == ("/", ())


def test_any_other_start_script_is_ignored() -> None:
    assert parse_rc("#!/bin/sh\necho boot\n") == (None, ())


@pytest.mark.parametrize(
    "run",
    [
        {"Env": ["A=1\0SLURM_PROCID=7"]},
        {"Env": ["A\0=1"]},
        {"Entrypoint": ["/e", "x\0more\0" + "1\0/tmp/theirs"]},
        {"WorkingDir": "/\0said"},
    ],
)
def test_a_nul_that_would_end_a_string_of_ours_is_refused(run: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"^i\.sqsh\.json: a NUL character in a variable, "):
        config_from_document(json.dumps({"config": run}).encode(), "i.sqsh.json")


_THEIRS = (
    *("CE_INHERIT", "CE_ENVIRONMENT", "CE_HOST_PATH", "EDF_PATH", "EDF_IMAGESTORE", "CE_PULL"),
    *("PYXIS_CONTAINER_IMAGE", "ENROOT_CONFIG_PATH", "SPANK_X", "SLURM_CONF", "SLURMD_NODENAME"),
    *("SBATCH_PARTITION", "SALLOC_ACCOUNT", "SRUN_CONTAINER", "SQUEUE_FORMAT", "SCANCEL_USER"),
    *("SINFO_FORMAT", "SACCT_FORMAT", "SBCAST_FORCE", "SCONTROL_ALL", "SPRIO_FORMAT"),
    *("SLURM_SPANK__SLURM_SPANK_OPTION_container_engine_environment", "PMI_RANK", "SCRATCH"),
    *("_SLURM_SPANK_OPTION_container_engine_container_image", "CONTAINERS_REGISTRIES_CONF"),
    *("REGISTRY_AUTH_FILE", "CONTAINER_HOST", "PMIX_RANK"),
)


@pytest.mark.parametrize("name", _THEIRS)
def test_what_decides_where_later_steps_run_is_no_images_to_say(image: Path, name: str) -> None:
    Path(f"{image}.json").write_text(json.dumps({"config": {"Env": ["A=1", f"{name}=no"]}}))
    found = from_file("i", str(image), os.environ).image
    assert (found.env, found.left_out) == ({"A": "1", "PATH": DEFAULT_PATH}, (name,))


def test_nor_is_it_a_file_in_an_images(tmp_path: Path, need_tool: Callable[[str], str]) -> None:
    need_tool("mksquashfs")
    need_tool("unsquashfs")
    files = {"etc/environment": "EDF_PATH=/evil\nexport CE_INHERIT='no'\nA=1\n"}
    below = squashfs.make(tmp_path / "i.sqsh", files)
    above = squashfs.make(tmp_path / "j.sqsh", {"etc/environment": "SBATCH_X=1\nEDF_PATH=/y\n"})
    parts = [from_file("i", str(path), os.environ) for path in (below, above)]
    found = stacked(parts).image
    assert found.env == {"A": "1", "PATH": DEFAULT_PATH}
    assert found.left_out == ("CE_INHERIT", "EDF_PATH", "SBATCH_X")


@pytest.mark.parametrize(
    "name", ["PMIX_MCA_psec", "SLIRP", "SCE_X", "OMPI_MCA_plm", "CUDA_HOME", "SRUNNER", "XEDF_A"]
)
def test_other_variables_are_an_images(image: Path, name: str) -> None:
    Path(f"{image}.json").write_text(json.dumps({"config": {"Env": [f"{name}=1"]}}))
    found = from_file("i", str(image), os.environ).image
    assert (found.env, found.left_out) == ({name: "1", "PATH": DEFAULT_PATH}, ())


def test_a_variable_without_a_name_is_no_instruction_to_the_plugin() -> None:
    text = json.dumps({"config": {"Env": ["=SLURM_PROCID=SLURM_JOB_ID", "A=1"]}}).encode()
    assert config_from_document(text, "i").env == {"A": "1", "PATH": DEFAULT_PATH}


def test_an_entrypoint_of_one_empty_string_is_none() -> None:
    text = json.dumps({"config": {"Entrypoint": [""], "Cmd": ["sh"]}}).encode()
    judge_config(text, "i")
    assert config_from_document(text, "i").entrypoint == ()


@pytest.mark.parametrize(
    ("said", "meant"), [("w/x", "/w/x"), ("../../x", "/x"), ("/a/../b", "/a/../b")]
)
def test_a_relative_working_directory_begins_at_the_root(said: str, meant: str) -> None:
    text = json.dumps({"config": {"WorkingDir": said}}).encode()
    assert config_from_document(text, "i.json").workdir == meant
