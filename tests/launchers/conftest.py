"""Fixtures of the tests with launchers: the cluster of two nodes, and a user's directory."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.launchers import stub_image
from tests.launchers.user import User
from tests.slurm.cluster import ALICE
from tests.slurm.conftest import cluster  # noqa: F401  # a fixture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.slurm.cluster import Cluster


@pytest.fixture(scope="session")
def stub(cluster: Cluster) -> Path:  # noqa: F811  # the fixture
    target = cluster.scratch / "stub.sqsh"
    stub_image.make(cluster, target)
    return target


@pytest.fixture
def user(cluster: Cluster) -> Iterator[User]:  # noqa: F811  # the fixture
    """Yield an ordinary user with an empty directory in the home, which all nodes see."""
    entry = pwd.getpwnam(ALICE)
    directory = Path(tempfile.mkdtemp(prefix="launcher-", dir=cluster.home()))
    os.chown(directory, entry.pw_uid, entry.pw_gid)
    try:
        yield User(cluster, directory)
    finally:
        cluster.cancel_all(ALICE)
        shutil.rmtree(directory, ignore_errors=True)
