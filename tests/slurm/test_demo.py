"""`make demo` as a new user sees it."""

import os
import subprocess

import pytest

from tests.slurm.cluster import ROOT, Completed


def _demo() -> Completed:
    """Run `make demo` without the variables of a make that runs this test."""
    env = {k: v for k, v in os.environ.items() if k not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
    return subprocess.run(
        ["make", "demo"],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.usefixtures("cluster")
def test_the_demo_shows_four_tasks_in_the_image_and_how_to_go_on() -> None:
    done = _demo()
    assert done.returncode == 0, done.stdout + done.stderr
    tasks = sorted(line for line in done.stdout.splitlines() if line.startswith("task "))
    assert [line.partition(" runs in: ")[0] for line in tasks] == [
        "task 0 on node n1",
        "task 1 on node n1",
        "task 2 on node n2",
        "task 3 on node n2",
    ]
    assert all("runs in: Container Engine demo" in line for line in tasks)
    assert [line.partition(":")[0] for line in done.stdout.splitlines()[-3:]] == [
        "your own command",
        "a shell inside",
        "stop the sandbox",
    ]
    lines = done.stdout.splitlines()
    title = next(i for i, line in enumerate(lines) if line.startswith("[5/5]"))
    assert "$ srun -N2 -n4 --environment=demo" in lines[title + 2]
    own = os.environ.get("CE_SANDBOX_DIR", "/var/lib/ce-sandbox")
    before = "" if own == "/var/lib/ce-sandbox" else f"CE_SANDBOX_DIR={own} "
    assert lines[-1].split(maxsplit=3)[-1] == f"{before}sandbox/down"
