"""Fixtures of the two machines, which keep running for the next test run."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm import pair
from tests.vm.alone import alone
from tests.vm.cluster import Cluster, gated_edf, write


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.vm)


@pytest.fixture(scope="session")
def tree() -> Path:
    """Return the tree whose engine both machines have."""
    return Path(os.environ.get("CE_VM_TREE") or pair.ROOT)


@pytest.fixture(scope="session")
def _machines(tree: Path) -> Iterator[pair.Pair]:
    with alone():
        machines = pair.made()
        machines.up()
        machines.install(tree)
        yield machines


@pytest.fixture
def cluster(_machines: pair.Pair) -> Iterator[Cluster]:
    """Yield two idle nodes; check afterwards that nothing is left of what ran on them."""
    cluster = Cluster(_machines)
    _machines.await_idle()
    yield cluster
    cluster.end_all()
    cluster.assert_nothing_left()


@pytest.fixture
def gated(cluster: Cluster) -> Iterator[str]:
    """Yield an environment that mounts each node's own /gate; the file `go` lets a step go on."""
    for machine in cluster.pair.machines:
        cluster.root(machine, "install -d -m 0777 /gate; rm -f /gate/*")
        write(machine, "/etc/edf/gated.toml", gated_edf("debian"))
    yield "gated"
    for machine in cluster.pair.machines:
        cluster.root(machine, "rm -f /etc/edf/gated.toml")


@pytest.fixture
def each(cluster: Cluster, gated: str) -> Iterator[str]:
    """Yield an environment like `gated` in which each task has a container of its own."""
    name, scope = f"{gated}-each", 'writable = true\n[annotations]\n"com.ce.scope" = "task"\n'
    for machine in cluster.pair.machines:
        write(machine, f"/etc/edf/{name}.toml", gated_edf("debian") + scope)
    yield name
    for machine in cluster.pair.machines:
        cluster.root(machine, f"rm -f /etc/edf/{name}.toml")
