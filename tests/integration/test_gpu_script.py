"""The script for machines with GPUs, where a driver and devices stand in for them."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ce_sandbox import images
from ce_sandbox.layout import Layout

from tests.integration.engine import ALICE, ROOT, Completed, person
from tests.integration.libraries import TRIPLE, run

GPU = ROOT / "tests/gpu"


@pytest.fixture(scope="module")
def unpacked(prepared: Path) -> Iterator[Path]:
    """Yield a directory of the user's into which the archive of `make gpu-bundle` is unpacked."""
    directory = Path(tempfile.mkdtemp(prefix="test-gpu-", dir=prepared / "cache"))
    image = images.provide(Layout(prepared), "demo")
    archive = run(GPU / "bundle", prepared / "prefix", image, directory / "ce-gpu.tar").strip()
    run("tar", "-C", directory, "-xf", archive)
    os.unlink(archive)
    user = person(ALICE)
    run("chown", "-R", f"{user.uid}:{user.gid}", directory)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def machine(unpacked: Path) -> Iterator[Path]:
    """Yield the root of a machine with two GPUs, their driver and MPS."""
    root = unpacked / "machine"
    libraries, programs = root / "usr/lib" / TRIPLE, root / "usr/bin"
    for directory in (libraries, programs, root / "dev"):
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
    run("gcc", "-DPROGRAM", "-o", programs / "nvidia-smi", GPU / "stand_in.c")
    run("install", ROOT / "tests/slurm/nvidia-cuda-mps-control", programs)
    yield root
    shutil.rmtree(root)


def tried(unpacked: Path, machine: Path) -> Completed:
    user = person(ALICE)
    return subprocess.run(
        [unpacked / "ce-gpu/run"],
        env={"PATH": os.environ["PATH"], "CE_GPU_MACHINE": str(machine)},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        user=user.uid,
        group=user.gid,
        extra_groups=[],
    )


def test_all_that_is_promised_for_gpus_holds_with_stand_ins(unpacked: Path, machine: Path) -> None:
    done = tried(unpacked, machine)
    *rows, last = done.stdout.splitlines()
    assert (last, done.returncode) == ("all held", 0), done.stdout + done.stderr
    assert {row.split()[0] for row in rows} == {"held"}, done.stdout
    assert "a CUDA kernel inside         2: a stand-in, no GPU" in done.stdout


def test_a_promise_that_does_not_hold_is_named_and_is_no_success(
    unpacked: Path, machine: Path
) -> None:
    (machine / "usr/bin/nvidia-smi").write_text("#!/bin/sh\n[ ! -e /gpu/image.sqsh ]\n")
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
