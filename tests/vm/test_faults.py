"""Steps when the network or the file server fails, and messages of unfit nodes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.slurm.polling import until
from tests.vm.cluster import DROP_CACHES, READS, Cluster, errors, gated_edf, write
from tests.vm.machine import Machine

_AWAY_S = 30
_PLUGIN = "/opt/container-engine/lib/slurm/container_engine.so"


@contextmanager
def _changed(cluster: Cluster, machine: Machine, do: str, undo: str) -> Iterator[None]:
    cluster.root(machine, do)
    try:
        yield
    finally:
        cluster.root(machine, undo)


def test_a_step_waits_for_a_file_server_that_is_away(cluster: Cluster, gated: str) -> None:
    with cluster.started(
        "-wvm2", f"--environment={gated}", "sh", "-c", f"{READS}; sleep 1; echo done"
    ) as job:
        job.wait_for("up\n")
        cluster.root(cluster.second, DROP_CACHES)
        with cluster.without_server():
            cluster.root(cluster.second, f"touch /gate/go; sleep {_AWAY_S}")
            assert "done" not in job.out
            assert job.process.poll() is None
        job.wait_for("done\n")
        assert (job.wait(), errors(job.err)) == (0, [])


def _lose(cluster: Cluster, image: str) -> None:
    with cluster.without_server():
        cluster.root(cluster.first, f"rm {image}")


def _overwrite(cluster: Cluster, image: str) -> None:
    cluster.root(cluster.first, f"head -c 1M /dev/urandom >{image}")


@pytest.mark.parametrize("harm", [_lose, _overwrite])
def test_a_step_whose_image_is_lost_on_the_server_fails_and_memory_is_not_blamed(
    cluster: Cluster, gated: str, harm: Callable[[Cluster, str], None]
) -> None:
    image = "/srv/apps/images/lost.sqsh"
    cluster.root(cluster.first, f"cp /srv/apps/images/debian.sqsh {image}")
    write(cluster.first, "/etc/edf/gated.toml", gated_edf("lost"))
    with cluster.started("-wvm2", f"--environment={gated}", "sh", "-c", READS) as job:
        job.wait_for("up\n")
        cluster.root(cluster.second, DROP_CACHES)
        harm(cluster, image)
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


@pytest.mark.parametrize(("kind", "limit"), [("user", 0), ("user", 1), ("pid", 0)])
def test_a_node_without_namespaces_says_so(cluster: Cluster, kind: str, limit: int) -> None:
    sysctl = f"user.max_{kind}_namespaces"
    before = cluster.root(cluster.second, f"sysctl -n {sysctl}").strip()
    change = (f"sysctl {sysctl}={limit}", f"sysctl {sysctl}={before}")
    with _changed(cluster, cluster.second, *change):
        done = cluster.srun("-wvm2", "--environment=debian", "true")
    assert done.returncode == 125
    assert sysctl in done.stderr
    assert len(errors(done.stderr)) == 1


def test_a_step_does_not_notice_that_slurmd_is_restarted(cluster: Cluster, gated: str) -> None:
    step = ["-wvm2", f"--environment={gated}", "sh", "-c", f"{READS}; echo done; exit 3"]
    with cluster.started(*step) as job:
        job.wait_for("up\n")
        cluster.root(cluster.second, "systemctl restart slurmd; touch /gate/go")
        assert (job.wait(), job.out, errors(job.err)) == (3, "up\ndone\n", [])


# Fills the disk, even what is reserved for root; --container-name needs room, a step does not.
_FILL = "fallocate -l $(df --output=avail -B1 / | tail -1) /full; cat /dev/zero >/full.rest; true"
_IN_FULL = """
echo up; while [ ! -e /gate/go ]; do sleep 1; done
srun --environment=home sh -c 'echo mine >~/mine.full; cat ~/mine.full; exit 3'; echo $?
srun --environment=debian --container-name=a true; echo $?
"""


@pytest.mark.usefixtures("gated")
def test_a_step_of_a_job_starts_on_a_node_whose_disk_is_full(cluster: Cluster) -> None:
    write(cluster.first, "/tmp/script", f"#!/bin/sh\n{_IN_FULL}", "0755")
    out = "/home/alice/full.%j"
    job = cluster.alice("sbatch", "--parsable", "-wvm2", f"-o{out}", "/tmp/script").strip()
    said = f"cat /srv/home/alice/full.{job}; true"
    until("the job", lambda: "up" in cluster.root(cluster.first, said), 600)
    undo = "rm -f /full*; systemctl restart slurmd"
    with _changed(cluster, cluster.second, _FILL, undo):
        cluster.root(cluster.second, "touch /gate/go")
        until("the job's end", lambda: cluster.state(job) == "COMPLETED", 600)
    # Slurm drained the node when it could not write either.
    cluster.first.ssh("scontrol update nodename=vm2 state=resume")
    text = cluster.root(cluster.first, f"{said}; rm -f /srv/home/alice/*full*")
    assert text.startswith("up\nmine\n"), text
    assert "\n3\n" in text
    assert text.endswith("\n125\n"), text
    error, *_others = errors(text)
    assert "No space left on device" in error
    assert "ce: hint: make room on the node's disk" in text


_HELPERS = "pkill -x -STOP -u alice 'ce-guard|ce-image'"


@pytest.mark.usefixtures("gated")
def test_helpers_that_are_stopped_again_and_again_hold_up_no_end(cluster: Cluster) -> None:
    with cluster.started("-wvm2", "--environment=gated", "sh", "-c", "echo up; sleep 4715") as job:
        job.wait_for("up\n")
        stopping = f"touch /gate/stop; while [ -e /gate/stop ]; do {_HELPERS}; sleep 0.1; done"
        # From outside of the step, as Slurm's signals to a step let its stopped processes go on.
        started = cluster.second.ssh(f"nohup sh -c '{stopping}' >/dev/null 2>&1 &", "alice")
        assert started.returncode == 0
        try:
            cluster.root(cluster.first, "scancel -u alice")
            assert job.wait() != 0
            cluster.pair.await_idle(120)
        finally:
            cluster.root(cluster.second, "rm -f /gate/stop")


def test_a_node_without_the_plugins_file_starts_nothing(cluster: Cluster) -> None:
    with _changed(
        cluster, cluster.second, f"mv {_PLUGIN} {_PLUGIN}.away", f"mv {_PLUGIN}.away {_PLUGIN}"
    ):
        done = cluster.srun("-N2", "--environment=debian", "echo", "started")
    assert done.returncode != 0
    assert done.stdout == ""
    # As documented for administrators: with PrologFlags=Contain, Slurm's own step fails first.
    assert "srun: error: Something is wrong with the boot of the nodes." in done.stderr
