"""The cluster that the tests of this folder run on: real Slurm, two nodes, on this machine."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, sandbox

NODES = 2


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running cluster; it is stopped afterwards unless it ran before."""
    if os.geteuid() != 0:
        pytest.skip("the sandbox needs root")
    ran_before = sandbox("status").returncode == 0
    done = sandbox("up", "-n", str(NODES))
    assert done.returncode == 0, done.stdout + done.stderr
    directory = Path(os.environ.get("CE_SANDBOX_DIR") or "/var/lib/ce-sandbox").resolve()
    scratch = Path(tempfile.mkdtemp(prefix="test-", dir=directory / "cache"))
    scratch.chmod(0o755)
    try:
        yield Cluster(directory, NODES, scratch)
    finally:
        shutil.rmtree(scratch)
        if not ran_before:
            sandbox("down")
