"""Repeated starts with a hook, where homes and software are on NFS."""

import re
import time
from collections.abc import Iterator

import pytest

from tests.vm.cluster import Cluster, write

_LIBEXEC = "/opt/container-engine/libexec/container-engine"
_HOOK = """
version = 1
release = "1"
summary = "software of the site"
help = "Adds a library."
[edits.x]
libraries = [{ files = ["/apps/software/lib*.so.*"] }]
refresh = true
env = { MINE = "yes" }
"""
_EDF = """
image = "/apps/images/debian.sqsh"
[annotations]
com.hooks.mine.enabled = "true"
"""
_NOTING = f'#!/bin/sh\necho launcher >>/run/launched\nexec {_LIBEXEC}/launcher.aside "$@"\n'
_LOOK = (
    "hostname; echo $MINE; sha256sum $(/sbin/ldconfig -p | awk '/libxxhash/ { print $NF; exit }');"
    " sha256sum /etc/ld.so.cache"
)
# longer than a file counts as young, and than an NFS client caches attributes by default
_SETTLED_S, _CACHED_S = 3, 61


@pytest.fixture
def cluster_with_hook(cluster: Cluster) -> Iterator[Cluster]:
    """Yield the cluster with the hook; its nodes record each start of the launcher in Python."""
    for machine in cluster.pair.machines:
        write(machine, "/etc/container-engine/hooks.d/mine/hook.toml", _HOOK)
        write(machine, "/etc/edf/mine.toml", _EDF)
        cluster.root(machine, f"mv {_LIBEXEC}/launcher {_LIBEXEC}/launcher.aside")
        write(machine, f"{_LIBEXEC}/launcher", _NOTING, "0755")
        cluster.root(machine, "install -m 0666 /dev/null /run/launched")
    software = "install -Dt /srv/apps/software /usr/lib/*-linux-gnu/libxxhash.so.0"
    cluster.root(cluster.first, software)
    time.sleep(_SETTLED_S)
    yield cluster
    for machine in cluster.pair.machines:
        cluster.root(machine, f"mv {_LIBEXEC}/launcher.aside {_LIBEXEC}/launcher")
        machine.ssh("rm -r /etc/container-engine /etc/edf/mine.toml /var/tmp/ce-answers-*")
    cluster.first.ssh("rm -r /srv/apps/software")


def _step(cluster: Cluster) -> tuple[dict[str, list[str]], list[int]]:
    """Run a step on both nodes; return what each task printed, and each node's starts of Python."""
    machines = cluster.pair.machines
    for machine in machines:
        cluster.root(machine, "truncate -s 0 /run/launched")
    done = cluster.srun("-N2", "--label", "--environment=mine", "sh", "-c", _LOOK)
    assert done.stderr == "", done.stderr
    assert done.returncode == 0
    tasks: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        rank, _colon, said = line.partition(": ")
        tasks.setdefault(rank, []).append(said)
    count = [cluster.root(m, "cat /run/launched").count("launcher") for m in machines]
    return tasks, count


def test_the_third_start_with_a_hook_is_the_first_one_without_python(
    cluster_with_hook: Cluster,
) -> None:
    cluster = cluster_with_hook
    told = [_step(cluster) for _ in range(3)]
    assert [count for _tasks, count in told] == [[1, 1], [1, 1], [0, 0]]
    assert told[0][0] == told[1][0] == told[2][0]
    hashes = {said[2].split()[0] for said in told[0][0].values()}
    assert [said[1] for said in told[0][0].values()] == ["yes", "yes"]
    assert len(hashes) == 1
    assert re.fullmatch("[0-9a-f]{64}", hashes.pop())


def test_software_that_is_replaced_on_the_file_server_is_the_new_one_on_all_nodes(
    cluster_with_hook: Cluster,
) -> None:
    cluster = cluster_with_hook
    assert [_step(cluster)[1] for _ in range(3)] == [[1, 1], [1, 1], [0, 0]]
    before = _step(cluster)[0]
    new = "cp libxxhash.so.0 new && echo more >>new && mv new libxxhash.so.0"
    digest = cluster.root(
        cluster.first, f"cd /srv/apps/software && {new} && sha256sum libxxhash.so.0"
    ).split()[0]
    time.sleep(_CACHED_S)
    after = _step(cluster)[0]
    assert {said[2].split()[0] for said in after.values()} == {digest}
    assert {said[2].split()[0] for said in before.values()} != {digest}
