"""Reading slurm.conf on a node."""

import os
from pathlib import Path

import pytest

from container_engine.base import slurm
from container_engine.node import slurm_step


def test_the_last_value_counts_whatever_the_case(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("TmpFS=/a\n#TmpFS=/c\ntmpfs = /local/%n # here\nTmpFSX=/d\n")
    assert slurm.conf_value(str(conf), "TmpFS") == "/local/%n"


def test_included_files_are_read_once(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("include more.conf\n")
    (tmp_path / "more.conf").write_text("Include slurm.conf\nInclude more.conf\nTmpFS=/b\n")
    assert slurm.conf_value(str(conf), "TmpFS") == "/b"


def test_a_key_that_is_not_there_has_no_value(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\nInclude nothing.conf\n")
    assert slurm.conf_value(str(conf), "TmpFS") == ""
    assert slurm.conf_value(str(tmp_path / "none"), "TmpFS") == ""


def test_the_steps_own_configuration_comes_first(tmp_path: Path) -> None:
    conf, more = tmp_path / "a.conf", tmp_path / "b.conf"
    more.touch()
    assert slurm.find_conf({"SLURM_CONF": str(conf)}, (str(more),)) != str(conf)
    conf.touch()
    assert slurm.find_conf({"SLURM_CONF": str(conf)}, (str(more),)) == str(conf)


def test_names_of_the_node_are_filled_in() -> None:
    step = {"SLURM_STEP_NODELIST": "n[1-3]", "SLURM_NODEID": "1"}
    assert slurm_step.in_path("/tmp/%n", step) == "/tmp/n2"
    assert slurm_step.in_path("/tmp/%n", {"SLURMD_NODENAME": "nid7"}) == "/tmp/nid7"


@pytest.mark.parametrize(
    ("script", "left_s", "said", "failed"),
    [
        ("echo n1; echo n2 >&2", 30, b"n1\nn2\n", ""),
        ("echo n1; exit 3", 30, b"n1\n", "n1"),
        ("echo n1; exec sleep 60", 1, b"n1\n", None),
        ("echo n1", 0, b"", None),
    ],
)
def test_a_steps_output_is_kept_however_it_ends(
    script: str, left_s: float, said: bytes, failed: str | None
) -> None:
    pieces: list[bytes] = []
    env = {"PATH": os.defpath}
    assert slurm.run_step(["sh", "-c", script], env, left_s, pieces.append) == failed
    assert b"".join(pieces) == said


def test_a_step_is_ended_once_it_has_said_enough() -> None:
    pieces: list[bytes] = []
    srun = ["sh", "-c", "echo n1; exec sleep 60"]
    slurm.run_step(srun, {"PATH": os.defpath}, 30, pieces.append, lambda: bool(pieces))
    assert pieces == [b"n1\n"]
