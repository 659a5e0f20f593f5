"""Start-up steps, in a shell of this host, hand on what they have changed in their environment."""

import os
import subprocess
from pathlib import Path

import pytest

from container_engine.node.container.description import INIT_PATH
from container_engine.node.start import startup_steps

_BEFORE = {
    "PATH": os.environ["PATH"],
    "OLD": "1 2",
    "SAME": "é",
    "SLURM_JOB_ID": "7",
    "PMIX_RANK": "0",
    # dash drops these
    "BASH_FUNC_ml%%": "() { echo; }",
    "a.b": "1",
    "7": "",
}


def _changes(ce_init: Path, *lines: str) -> bytes:
    """Return what the steps leave in the file for their changes."""
    words = startup_steps.command([{"line": line, "from": "e"} for line in lines], {})
    output = os.memfd_create("output", 0)
    argv = [word.replace(INIT_PATH, str(ce_init)) for word in (*words, str(output))]
    subprocess.run(argv, env=_BEFORE, pass_fds=[output], capture_output=True, check=False)
    os.lseek(output, 0, os.SEEK_SET)
    with open(output, "rb") as file:
        return file.read()


@pytest.mark.parametrize(
    ("lines", "changes"),
    [
        (["true"], b""),
        (["export NEW='a\nb'", "export OLD="], b"NEW=a\nb\0OLD=\0"),
        (["unset OLD; export SAME=é"], b"OLD\0"),
        (["export A=1; exit 0", "export A=2"], b"A=1\0"),
        (["cd /; export SLURM_JOB_ID=8 PMI_X=1; unset PMIX_RANK"], b""),
        (["export PMIX_MCA_x=1"], b"PMIX_MCA_x=1\0"),
        (["set -- a b; unset IFS; export A=$#$*"], b"A=2a b\0"),
    ],
)
def test_what_steps_change_is_handed_on_and_nothing_of_the_shells_or_slurms(
    ce_init: Path, lines: list[str], changes: bytes
) -> None:
    found = _changes(ce_init, *lines)
    assert found[:1] == b"\0"
    assert sorted(found[1:].split(b"\0")) == sorted(changes.split(b"\0"))


@pytest.mark.parametrize("line", ["false", "exec true", "exec env", "kill -9 $$"])
def test_steps_that_do_not_come_to_their_end_hand_on_nothing(ce_init: Path, line: str) -> None:
    assert not _changes(ce_init, "export A=1", line, "export B=1").startswith(b"\0")


def test_a_shell_that_is_missing_is_named(ce_init: Path) -> None:
    argv = [str(ce_init), "--startup", "/not/there", "1"]
    done = subprocess.run(argv, env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (127, "/not/there: No such file or directory\n")
