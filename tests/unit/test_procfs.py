"""Cluster tests see the sandbox's processes alone, whatever else runs on this machine."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.slurm import faults, procfs

Start = Callable[..., int]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Yield a function that starts a process of this name with variables and returns its pid."""
    monkeypatch.setenv("CE_SANDBOX_DIR", str(tmp_path))

    with ExitStack() as stack:

        def started(name: str, **environment: str) -> int:
            program = shutil.copy("/bin/sleep", tmp_path / name)
            child = stack.enter_context(subprocess.Popen([program, "1000"], env=environment))
            stack.callback(child.kill)
            return child.pid

        yield started


@pytest.mark.parametrize("name", ["slurmd", "slurmctld", "munged", "slurmstepd", "ce-guard"])
@pytest.mark.parametrize("environment", [{}, {"SLURM_CONF": "/etc/slurm/slurm.conf"}])
def test_a_daemon_of_the_machines_own_slurm_is_nobody_to_look_at(
    start: Start, name: str, environment: dict[str, str]
) -> None:
    pid = start(name, **environment)
    assert pid not in {process.pid for process in procfs.processes()}


def test_what_was_started_for_the_sandboxs_cluster_is_seen(start: Start, tmp_path: Path) -> None:
    pid = start("slurmd", SLURM_CONF=f"{tmp_path}/etc/slurm.conf")
    (found,) = [process for process in procfs.processes() if process.pid == pid]
    assert (found.comm, found.uid, found.parent) == ("slurmd", os.getuid(), os.getpid())


@pytest.mark.parametrize("kind", ["pause a daemon", "kill slurmstepd", "kill a process"])
def test_no_fault_strikes_a_process_outside_the_sandbox(start: Start, kind: str) -> None:
    for name in ("slurmd", "slurmctld", "munged", "slurmstepd", "srun"):
        start(name)
    fault = faults.Fault(kind, "", 0, 0, 0, imports=False, again=False, way="")
    assert faults._victim(fault, os.getuid()) is None
