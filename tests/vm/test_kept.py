"""Containers that live with their job, from its first step to its end."""

from collections.abc import Iterator

import pytest

from tests.slurm.polling import until
from tests.vm.cluster import STEP_S, Cluster, errors, write

_NAMED = "--environment=gated --container-name=a"
_WAIT = "while [ ! -e /gate/{0} ]; do sleep 1; done"
# Where Slurm gives each job a /tmp of its own, it is below the second directory.
_KEPT = "find /tmp /var/spool/job_container -path '*/ce-kept-*/*' -prune -print; true"


def _assert_nothing_kept(cluster: Cluster) -> None:
    gone = "the end of what the container has written"
    until(gone, lambda: not cluster.root(cluster.second, _KEPT), 120)


@pytest.fixture
def shared_tmp(cluster: Cluster) -> Iterator[None]:
    """Let all jobs have the node's own /tmp."""
    _configure(cluster, "s/^JobContainerType=/#&/")
    yield
    _configure(cluster, "s/^#\\(JobContainerType=\\)/\\1/")


def _configure(cluster: Cluster, change: str) -> None:
    for machine in cluster.pair.machines:
        cluster.root(machine, f"sed -i '{change}' /etc/slurm/slurm.conf")
    cluster.root(cluster.first, "systemctl restart slurmctld slurmd")
    cluster.root(cluster.second, "systemctl restart slurmd")
    cluster.pair.await_idle(600)


def test_a_step_goes_on_with_a_container_another_joins_and_its_job_takes_it_along(
    cluster: Cluster, gated: str
) -> None:
    assert gated in _NAMED
    first = f"echo two >>/mine; touch /gate/up; {_WAIT.format('joined')}"
    # What is read after the other step's end comes from the joining step's server alone.
    second = f"cat /mine; touch /gate/joined; {_WAIT.format('over')}; cat /usr/bin/* | wc -c"
    script = f"""
srun {_NAMED} sh -c 'echo one >/mine'
srun --overlap {_NAMED} sh -c '{first}' & going=$!
srun --overlap sh -c '{_WAIT.format("up")}'
srun --overlap --container-name=a:exec sh -c '{second}' & joined=$!
wait $going; echo over: $?
srun --overlap touch /gate/over
wait $joined; echo joined: $?
srun --environment=gated sh -c '[ ! -e /mine ]; cat /usr/bin/* | wc -c'
"""
    write(cluster.first, "/tmp/script", script)
    done = cluster.first.ssh("salloc -Q -N1 -wvm2 bash /tmp/script", "alice", 2 * STEP_S)
    assert (done.returncode, errors(done.stderr)) == (0, []), done.stdout + done.stderr
    one, two, over, read, joined, fresh = done.stdout.splitlines()
    assert (one, two, over, joined) == ("one", "two", "over: 0", "joined: 0")
    assert read == fresh
    _assert_nothing_kept(cluster)


@pytest.mark.usefixtures("shared_tmp")
def test_the_epilog_removes_a_container_from_a_tmp_that_is_all_jobs(cluster: Cluster) -> None:
    script = """
srun --environment=debian --container-name=a sh -c 'mkdir -m 0 /closed; echo one >/mine'
srun --environment=debian --container-name=a cat /mine
srun ls /tmp
"""
    write(cluster.first, "/tmp/script", script)
    done = cluster.first.ssh("salloc -Q -N1 -wvm2 bash /tmp/script", "alice", STEP_S)
    assert (done.returncode, errors(done.stderr)) == (0, []), done.stdout + done.stderr
    said, *tmp = done.stdout.splitlines()
    assert said == "one"
    assert "ce-kept-1000" in tmp
    _assert_nothing_kept(cluster)
