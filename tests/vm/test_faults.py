"""Steps when the network or the file server fails, and messages of unfit nodes."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.vm.cluster import Cluster, errors, write
from tests.vm.machine import Machine

_AWAY_S = 30
_DROP_CACHES = "sync; echo 3 >/proc/sys/vm/drop_caches"
_PLUGIN = "/opt/container-engine/lib/slurm/container_engine.so"
# Reads parts of the image that have not been read before.
_READS = (
    "echo up; while [ ! -e /gate/go ]; do sleep 1; done;"
    " cat /usr/bin/* /usr/lib/x86_64-linux-gnu/*.so* >/dev/null"
)


@pytest.fixture
def gated(cluster: Cluster) -> Iterator[str]:
    """Yield an environment with /gate of the second node; its file `go` lets a step continue."""
    cluster.root(cluster.second, "install -d -m 0777 /gate; rm -f /gate/go")
    write(cluster.first, "/etc/edf/gated.toml", _edf("debian"))
    yield "gated"
    cluster.root(cluster.first, "rm -f /etc/edf/gated.toml")


def _edf(image: str) -> str:
    return f'image = "/apps/images/{image}.sqsh"\nmounts = ["/gate"]\n'


@contextmanager
def _without_server(cluster: Cluster) -> Iterator[None]:
    """Stop the file server during the block."""
    cluster.root(cluster.first, "systemctl stop nfs-server")
    try:
        yield
    finally:
        cluster.root(cluster.first, "systemctl start nfs-server")


@contextmanager
def _changed(cluster: Cluster, machine: Machine, do: str, undo: str) -> Iterator[None]:
    cluster.root(machine, do)
    try:
        yield
    finally:
        cluster.root(machine, undo)


def test_a_step_waits_for_a_file_server_that_is_away(cluster: Cluster, gated: str) -> None:
    with cluster.started(
        "-wvm2", f"--environment={gated}", "sh", "-c", f"{_READS}; sleep 1; echo done"
    ) as job:
        job.wait_for("up\n")
        cluster.root(cluster.second, _DROP_CACHES)
        with _without_server(cluster):
            cluster.root(cluster.second, f"touch /gate/go; sleep {_AWAY_S}")
            assert "done" not in job.out
            assert job.process.poll() is None
        job.wait_for("done\n")
        assert (job.wait(), errors(job.err)) == (0, [])


def test_a_step_whose_image_the_server_has_lost_fails_and_memory_is_not_blamed(
    cluster: Cluster, gated: str
) -> None:
    images = "/srv/apps/images"
    cluster.root(cluster.first, f"cp {images}/debian.sqsh {images}/lost.sqsh")
    write(cluster.first, "/etc/edf/gated.toml", _edf("lost"))
    with cluster.started("-wvm2", f"--environment={gated}", "sh", "-c", _READS) as job:
        job.wait_for("up\n")
        cluster.root(cluster.second, _DROP_CACHES)
        with _without_server(cluster):
            cluster.root(cluster.first, f"rm {images}/lost.sqsh")
        cluster.root(cluster.second, "touch /gate/go")
        assert job.wait() != 0
        assert "the image can no longer be read: '/apps/images/lost.sqsh'" in job.err
        assert "memory" not in job.err


def test_a_step_goes_on_when_the_link_was_cut(cluster: Cluster) -> None:
    with cluster.started(
        "-N2", "--environment=debian", "sh", "-c", "echo up; sleep 60; echo done"
    ) as job:
        job.wait_for("up\nup\n")
        cluster.second.monitor("set_link cluster off")
        try:
            cluster.root(cluster.second, f"sleep {_AWAY_S}")
        finally:
            cluster.second.monitor("set_link cluster on")
        assert (job.wait(), job.out, errors(job.err)) == (0, "up\nup\ndone\ndone\n", [])


def test_proc_may_hide_the_processes_of_others(cluster: Cluster) -> None:
    do, undo = (f"mount -o remount,hidepid={value} /proc" for value in (2, 0))
    with _changed(cluster, cluster.second, do, undo):
        done = cluster.srun("-wvm2", "--environment=debian", "sh", "-c", "exit 3")
    assert done.returncode == 3, done.stderr
    assert errors(done.stderr) == []


def test_a_node_without_user_namespaces_says_so(cluster: Cluster) -> None:
    sysctl = "user.max_user_namespaces"
    before = cluster.root(cluster.second, f"sysctl -n {sysctl}").strip()
    change = (f"sysctl {sysctl}=0", f"sysctl {sysctl}={before}")
    with _changed(cluster, cluster.second, *change):
        done = cluster.srun("-wvm2", "--environment=debian", "true")
    assert done.returncode == 125
    assert sysctl in done.stderr
    assert len(errors(done.stderr)) == 1


def test_a_node_without_the_plugins_file_starts_nothing(cluster: Cluster) -> None:
    with _changed(
        cluster, cluster.second, f"mv {_PLUGIN} {_PLUGIN}.away", f"mv {_PLUGIN}.away {_PLUGIN}"
    ):
        done = cluster.srun("-N2", "--environment=debian", "echo", "started")
    assert done.returncode != 0
    assert done.stdout == ""
    # As documented for administrators: with PrologFlags=Contain, Slurm's own step fails first.
    assert "srun: error: Something is wrong with the boot of the nodes." in done.stderr
