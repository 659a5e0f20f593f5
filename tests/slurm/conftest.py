"""Fixtures of the cluster tests: real Slurm with two nodes on this machine."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.installed import require_current
from tests.slurm.cluster import Cluster, sandbox
from tests.slurm.error_block import Provoked, differing
from tests.slurm.forge import Forge
from tests.slurm.leftovers import assert_nothing_left, foreign, records
from tests.slurm.site import Site, site_on

NODES = 2


@pytest.fixture(scope="session")
def cluster(alone: Path) -> Iterator[Cluster]:
    """Yield a running cluster; stop it afterwards unless it ran before."""
    require_current(alone)
    ran_before = sandbox("status").returncode == 0
    done = sandbox("up", "-n", str(NODES))
    assert done.returncode == 0, done.stdout + done.stderr
    scratch = Path(tempfile.mkdtemp(prefix="test-", dir=alone / "cache"))
    scratch.chmod(0o755)
    try:
        before = Cluster(alone, NODES, scratch)
        roots = foreign(before)
        yield replace(before, records=records(before))
        # Users must still be able to work in their homes.
        assert foreign(before) <= roots
    finally:
        shutil.rmtree(scratch)
        if not ran_before:
            sandbox("down")


@pytest.fixture
def tidy(cluster: Cluster) -> Iterator[None]:
    """Check after the test that no container has left anything."""
    yield
    assert_nothing_left(cluster)


@pytest.fixture(scope="session")
def demo(cluster: Cluster) -> str:
    """Return an environment with the demo image and nothing else."""
    return cluster.edf(image="demo")


@pytest.fixture
def shared(cluster: Cluster) -> Path:
    """Return a directory that every user may write; a container needs a mount to see it."""
    directory = Path(tempfile.mkdtemp(prefix="shared-", dir=cluster.scratch))
    directory.chmod(0o777)
    return directory


@pytest.fixture
def forge(cluster: Cluster, shared: Path) -> Forge:
    return Forge(cluster, shared)


@pytest.fixture
def mounted(cluster: Cluster, shared: Path) -> str:
    """Return an environment with the demo image that has `shared` at the same path."""
    return cluster.edf(f'mounts = ["{shared}:{shared}"]\n')


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Site]:
    with site_on(cluster) as site:
        yield site


@pytest.fixture
def provoked(cluster: Cluster, shared: Path) -> Provoked:
    return Provoked(cluster, shared)


@pytest.fixture(scope="module")
def n2(cluster: Cluster) -> Iterator[str]:
    """Yield the name of a node whose mounts tests may change; it is restarted afterwards."""
    del cluster
    with differing("n2"):
        yield "n2"
