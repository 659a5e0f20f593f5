"""Checks of an EDF that run a program: merged by name, expanded, and refused in one line."""

from pathlib import Path

import pytest

from container_engine.edf.load import Setting, load
from container_engine.edf.model import Edf
from container_engine.edf.show import to_toml

_BASE = """
image = "/x.sqsh"
[[checks]]
name = "fabric"
command = ["false"]
severity = "fail"
[[checks]]
name = "gpus"
command = ["nvidia-smi", "-L"]
words = ["H100"]
limit_s = 2.5
valid_s = 60
"""
_OWN = """
base_environment = "${EDF_DIR}/base.toml"
[[checks]]
name = "fabric"
command = ["sh", "-c", "echo $$HOME ${HOME}"]
"""


def _loaded(directory: Path, text: str) -> tuple[Edf | None, list[str]]:
    (directory / "base.toml").write_text(_BASE)
    (directory / "own.toml").write_text(text)
    setting = Setting(
        {"HOME": "/home/alice"}, str(directory), lambda name: name.startswith("SLURM")
    )
    loaded, _files = load(f"{directory}/own.toml", setting)
    return loaded.edf, [str(problem) for problem in loaded.problems]


def test_a_check_replaces_that_of_a_base_by_its_name(tmp_path: Path) -> None:
    edf, problems = _loaded(tmp_path, _OWN)
    assert problems == []
    assert edf is not None
    (fabric, here), (gpus, below) = edf.checks
    assert (fabric.name, fabric.command) == ("fabric", ("sh", "-c", "echo $HOME /home/alice"))
    assert (fabric.severity, gpus.limit_s, gpus.words) == ("warn", 2.5, ("H100",))
    assert (str(here), str(below)) == (f"{tmp_path}/own.toml:3", f"{tmp_path}/base.toml:7")
    again, problems = _loaded(tmp_path, to_toml(edf))
    assert problems == []
    assert again is not None
    assert [check for check, _ in again.checks] == [fabric, gpus]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('command = "true"', "3: checks[0].command: must be an array"),
        ("", "1: checks[0].command: is missing"),
        ("command = []", "3: checks[0].command: must have a program"),
        ('limt_s = 1\ncommand = ["a"]', "3: unknown key 'checks[0].limt_s', did you"),
        ('command = ["a"]\ntimeout = 1', "4: unknown key 'checks[0].timeout'"),
        ('command = ["a"]\nexit_code = 256', "4: checks[0].exit_code: must be at most 255"),
        ('command = ["a"]\nlimit_s = 4000', "4: checks[0].limit_s: must be at most 3600"),
        ('command = ["a"]\nlimit_s = 0', "4: checks[0].limit_s: must be greater than 0"),
        ('command = ["a"]\nprogram = "hook"', "4: checks[0].program: must be 'image' or 'host'"),
        (
            'command = ["a"]\ninside = false',
            '4: checks[0].inside: the image is not there yet: set program = "host"',
        ),
        ('command = ["a"]\nper = "pair"\nvalid_s = 9', "5: checks[0].valid_s: a pair is never"),
        ('command = ["$X"]', "3: checks[0].command: variable 'X' is not defined"),
        (
            'command = ["${SLURM_JOB_ID}"]',
            "3: checks[0].command: variable 'SLURM_JOB_ID' exists only",
        ),
        ('command = ["a"]\n[[checks]]\nname = "n"\ncommand = ["a"]', "5: checks[1].name: there is"),
    ],
)
def test_a_check_that_cannot_be_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    edf, problems = _loaded(tmp_path, f'[[checks]]\nname = "n"\n{text}\n')
    assert edf is None
    (problem,) = problems
    assert problem.startswith(f"{tmp_path}/own.toml:{said}")
