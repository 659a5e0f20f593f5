"""Fixtures of the two machines, which keep running for the next test run."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm import pair
from tests.vm.cluster import Cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.vm)


@pytest.fixture(scope="session")
def _machines() -> pair.Pair:
    tree = Path(os.environ.get("CE_VM_TREE") or pair.ROOT)
    package, machines = pair.package(tree), pair.made()
    machines.up()
    machines.install(package)
    return machines


@pytest.fixture
def cluster(_machines: pair.Pair) -> Iterator[Cluster]:
    """Yield two idle nodes; check afterwards that nothing is left of what ran on them."""
    cluster = Cluster(_machines)
    _machines.await_idle()
    yield cluster
    cluster.end_all()
    cluster.assert_nothing_left()
