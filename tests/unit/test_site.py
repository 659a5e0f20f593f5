"""The site's configuration file: who may write it, what it may say."""

import os
from pathlib import Path

import pytest

from container_engine.errors import SiteError
from container_engine.site import SYSTEM_FILE, SiteConfig, candidates, find, load


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "etc/container-engine/site.toml"
    path.parent.mkdir(parents=True)
    path.write_text("entrypoint = true\n")
    path.chmod(0o644)
    return path


def refusal(file: Path, uid: int = 0) -> str:
    with pytest.raises(SiteError) as caught:
        load(str(file), uid)
    return caught.value.message


def test_a_file_below_the_installation_counts_before_the_systems(
    tmp_path: Path, file: Path
) -> None:
    assert candidates(str(tmp_path)) == (str(file), SYSTEM_FILE)
    assert find(str(tmp_path)) == str(file)
    assert load(str(file), os.geteuid()).entrypoint


def test_without_a_file_everything_has_a_default(tmp_path: Path) -> None:
    assert SiteConfig().start_timeout_s == 120
    if not os.path.lexists(SYSTEM_FILE):
        assert find(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("entrypiont = true", "unknown key 'entrypiont'"),
        ("version = 2", "version: input should be 1"),
        ("start_timeout_s = 0", "start_timeout_s: input should be greater than 0"),
        ("a = x", "not valid TOML: Invalid value (at line 1, column 5)"),
    ],
)
def test_what_it_may_not_say_is_named(file: Path, text: str, problem: str) -> None:
    file.write_text(text)
    assert refusal(file, os.geteuid()) == f"{file}: {problem}"


def test_all_wrong_keys_are_named(file: Path) -> None:
    file.write_text("x = 1\ny = 2\n")
    assert refusal(file, os.geteuid()) == f"{file}: unknown key 'x'; {file}: unknown key 'y'"


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert refusal(file, os.geteuid()) == f"{file}: others than its owner may write it"


def test_a_file_of_another_user_is_refused(file: Path) -> None:
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)
    owner = file.stat().st_uid
    assert refusal(file, owner + 1) == f"{file}: owned by user {owner}, not by root"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path}: is a directory"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SLURM_JOB_ID", True),
        ("SLURMD_NODENAME", True),
        ("CUDA_VISIBLE_DEVICES", True),
        ("CUDA_VISIBLE_DEVICES_X", False),
        ("SLURM", False),
        ("HOME", False),
    ],
)
def test_which_variables_only_the_node_knows(name: str, expected: bool) -> None:
    assert SiteConfig().is_deferred(name) == expected


def test_the_example_shows_every_key_with_its_default(file: Path) -> None:
    file.write_bytes((Path(__file__).parents[2] / "docs/admin/site.toml").read_bytes())
    shown = load(str(file), os.geteuid())
    assert shown.model_fields_set == set(SiteConfig.model_fields)
    assert shown.model_copy(update={"image_store": None}) == SiteConfig()
