"""The script for machines with GPUs, where a driver and devices stand in for them."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engine import ALICE, ROOT, Completed, person
from tests.integration.libraries import TRIPLE, run

GPU = ROOT / "tests/gpu"


@pytest.fixture(scope="module")
def unpacked(prepared: Path) -> Iterator[Path]:
    """Yield a directory of the user's into which the archive of `make gpu-bundle` is unpacked."""
    directory = Path(tempfile.mkdtemp(prefix="test-gpu-", dir=prepared / "cache"))
    os.environ["CE_GPU_LEVEL"] = "0"
    engine = run(ROOT / "packaging/bundle", directory).strip()
    archive = run(GPU / "bundle", engine, directory / "ce-gpu.tar").strip()
    os.unlink(engine)
    del os.environ["CE_GPU_LEVEL"]
    run("tar", "-C", directory, "-xf", archive)
    os.unlink(archive)
    user = person(ALICE)
    run("chown", "-R", f"{user.uid}:{user.gid}", directory)
    directory.chmod(0o755)
    (directory / "ce-gpu").chmod(0o700)  # root of a namespace may not read it
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def machine(unpacked: Path) -> Iterator[Path]:
    """Yield the root of a machine with two GPUs and MPS, where nvidia-smi is a script."""
    root = unpacked / "machine"
    libraries, programs = root / "usr/lib" / TRIPLE, root / "usr/bin"
    real = root / "usr/local/nvidia/bin"
    for directory in (libraries, programs, real, root / "dev"):
        directory.mkdir(parents=True)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        run("mknod", "-m", "666", root / "dev" / name, "c", "1", "3")
    shared: list[str | Path] = [
        "-shared",
        "-fPIC",
        "-Wl,-soname,libcuda.so.1",
        "-o",
        libraries / "libcuda.so.1.2.3",
    ]
    run("gcc", "-Wall", "-Wextra", "-Werror", *shared, GPU / "stand_in.c")
    (libraries / "libcuda.so.1").symlink_to("libcuda.so.1.2.3")
    run("gcc", "-DPROGRAM", "-o", real / "nvidia-smi", GPU / "stand_in.c")
    (programs / "nvidia-smi").write_text('#!/bin/sh\nexec /usr/local/nvidia/bin/nvidia-smi "$@"\n')
    (programs / "nvidia-smi").chmod(0o755)
    run("install", ROOT / "tests/slurm/nvidia-cuda-mps-control", programs)
    yield root
    shutil.rmtree(root)


def tried(unpacked: Path, machine: Path, *, root: bool = False, umask: int = 0o022) -> Completed:
    user = person(ALICE)
    who: dict[str, Any] = {"user": user.uid, "group": user.gid, "extra_groups": []}
    return subprocess.run(
        ["sh", unpacked / "ce-gpu/run"],
        env={"PATH": os.environ["PATH"], "CE_GPU_MACHINE": str(machine)},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        umask=umask,
        **({} if root else who),
    )


@pytest.mark.parametrize(("root", "umask"), [(False, 0o002), (False, 0o077), (True, 0o022)])
def test_all_that_is_promised_for_gpus_holds_with_stand_ins(
    unpacked: Path, machine: Path, root: bool, umask: int
) -> None:
    done = tried(unpacked, machine, root=root, umask=umask)
    versions, *rows, last = done.stdout.splitlines()
    assert (last, done.returncode) == ("all held", 0), done.stdout + done.stderr
    assert {row.split()[0] for row in rows} == {"held"}, done.stdout
    assert "a CUDA kernel inside         2: a stand-in, no GPU" in done.stdout
    assert f"Linux {os.uname().release}; " in versions


def test_a_promise_that_does_not_hold_is_named_and_is_no_success(
    unpacked: Path, machine: Path
) -> None:
    shutil.rmtree(machine / "usr/local/nvidia")
    (machine / "usr/bin/nvidia-cuda-mps-control").unlink()
    done = tried(unpacked, machine)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == (
        "2 failed: nvidia-smi inside, DRIVER_CAPABILITIES=utility"
    )
    assert "not here" in done.stdout


def test_a_machine_without_gpus_has_tried_nothing(unpacked: Path, tmp_path: Path) -> None:
    done = tried(unpacked, tmp_path)
    assert done.returncode == 3
    assert done.stdout.startswith("no GPU here: ")


@pytest.fixture
def groups() -> Iterator[None]:
    """Remove the node's cgroups, which outlive a slurmd that is killed with its namespace."""
    yield
    for group in sorted(Path("/sys/fs/cgroup").glob("*/slurm_gpu1/**/"), reverse=True):
        group.rmdir()


@pytest.mark.usefixtures("groups")
def test_a_cluster_for_a_gpu_machine_starts_on_a_bare_one_and_measures(unpacked: Path) -> None:
    script = "chmod -x /gpu/ce-gpu/run; sh /gpu/ce-gpu/run numbers reliability"
    done = subprocess.run(
        [GPU / "dry", unpacked, "LIMIT_S=400", "sh", "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
    assert done.stdout.splitlines().count("done") == 2
    table = (unpacked / "numbers.txt").read_text()
    assert re.search(r"\nmatrix product, .* \| TFLOP/s, 1 rounds\n", table)
    assert '| the same: {"opens": ["nvidia0"], "CUDA_VISIBLE_DEVICES": "0"' in table
    assert '| the same: {"opens": [], "CUDA_VISIBLE_DEVICES": null' in table
    ways = (unpacked / "reliability.txt").read_text()
    assert re.search(r"\nkill -9 by itself +\| +137 \| +137 \| Killed; nothing left\n", ways)
    assert re.search(r"\nout of memory +\| +1 \| +1 \| oom[-_]kill Killed; nothing left\n", ways)
    assert ways.count("nothing left") == 6
