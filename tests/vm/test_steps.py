"""Checks that need machines of their own: cgroup v2, a job's own /tmp, NFS."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slurm.polling import until
from tests.vm.cluster import Cluster, errors, write
from tests.vm.machine import Machine

_SERVICE = r"""
version = 1
release = "1"
summary = "a service"
help = "Writes down what becomes of it."
[services.daemon]
command = ["/bin/sh", "-c", "echo start >>/srv-log/log; setsid sleep 4711 >/dev/null 2>&1 &"]
stop = ["/bin/sh", "-c", "echo stop >>/srv-log/log"]
"""
_OCI_HOOK = """
{"version": "1.0.0", "hook": {"path": "/usr/local/bin/poststop"},
 "when": {"always": true}, "stages": ["poststop"]}
"""
_IMAGE = 'image = "/apps/images/debian.sqsh"\n'
_EDF = f"""{_IMAGE}
mounts = ["/var/lib/log-of-services:/srv-log"]
[annotations]
com.hooks.daemon.enabled = "true"
"""
_SITE = 'hooks_dirs = ["/etc/oci-hooks"]\n'


@contextmanager
def _journal(cluster: Cluster) -> Iterator[dict[Machine, str]]:
    """Collect what slurmd and its steps log of the plugin during the block."""
    log, said = "/var/log/slurm/slurmd.log", dict[Machine, str]()
    begin = {m: cluster.root(m, f"wc -l <{log}").strip() for m in cluster.pair.machines}
    yield said
    for machine, lines in begin.items():
        new = f"tail -n +{int(lines) + 1} {log} | grep container_engine: || true"
        said[machine] = cluster.root(machine, new)


@pytest.mark.parametrize("code", [0, 7])
def test_a_step_ends_with_its_exit_code_and_without_a_word(cluster: Cluster, code: int) -> None:
    with _journal(cluster) as journal:
        done = cluster.srun("-N2", "--environment=debian", "sh", "-c", f"exit {code}")
    assert done.returncode == code, done.stderr
    assert [
        line for line in done.stderr.splitlines() if not line.startswith("srun: error: vm")
    ] == []
    assert set(journal.values()) == {""}


def test_services_are_stopped_and_poststop_runs_at_the_end_of_a_step(cluster: Cluster) -> None:
    node, log = cluster.second, "/var/lib/log-of-services/log"
    cluster.root(node, f"install -d -m 1777 {Path(log).parent}; rm -f {log}")
    write(node, "/etc/oci-hooks/poststop.json", _OCI_HOOK)
    write(node, "/usr/local/bin/poststop", f"#!/bin/sh\necho poststop >>{log}", "0755")
    for machine in cluster.pair.machines:
        write(machine, "/etc/container-engine/hooks.d/daemon/hook.toml", _SERVICE)
        write(machine, "/etc/container-engine/conf.d/vm.toml", _SITE)
        write(machine, "/etc/edf/service.toml", _EDF)
    try:
        done = cluster.srun("-wvm2", "--environment=service", "cat", "/srv-log/log")
        assert (done.returncode, done.stdout, errors(done.stderr)) == (0, "start\n", [])
        until("stop, poststop", lambda: "poststop" in cluster.root(node, f"cat {log}"), 60)
        assert cluster.root(node, f"cat {log}").split() == ["start", "stop", "poststop"]
    finally:
        for machine in cluster.pair.machines:
            machine.ssh("rm -r /etc/container-engine /etc/edf/service.toml /etc/oci-hooks")


def test_a_container_has_the_tmp_and_dev_shm_of_its_job(cluster: Cluster) -> None:
    cluster.root(cluster.second, "touch /tmp/of-the-node /dev/shm/of-the-node; chmod 1777 /dev/shm")
    edf = 'image = "/apps/images/debian.sqsh"\\nmounts = ["/tmp:/job-tmp"]\\n'
    script = f"""
printf '{edf}' >tmp.toml
srun sh -c 'echo native >/tmp/native; echo native >/dev/shm/native; ls /tmp /dev/shm'
echo --
srun --environment=./tmp.toml sh -c 'ls /job-tmp /dev/shm; echo c | tee /job-tmp/c >/dev/shm/c'
echo --
srun cat /tmp/c /dev/shm/c
"""
    write(cluster.first, "/tmp/script", script)
    done = cluster.first.ssh("salloc -Q -N1 -wvm2 bash /tmp/script", "alice", 600)
    assert done.returncode == 0, done.stderr
    native, inside, after = done.stdout.split("--\n")
    assert "of-the-node" not in native
    assert inside.split() == ["/dev/shm:", "native", "/job-tmp:", "native"]
    assert after == "c\nc\n"
    assert "c" not in cluster.root(cluster.second, "ls /tmp /dev/shm").split()


def test_every_process_of_a_step_is_in_its_cgroup_and_none_is_left(cluster: Cluster) -> None:
    script = "setsid sleep 4712 & echo up; exec sleep 4713"
    with cluster.started("-wvm2", "-n2", "--environment=debian", "sh", "-c", script) as job:
        job.wait_for("up\nup\n")
        placed = cluster.placed(cluster.second)
        tasks = [cgroup for name, cgroup in placed if name == "sleep"]
        assert len(tasks) == 4, placed
        assert all("/step_0/user/task_" in cgroup for cgroup in tasks)
        assert {"ce-guard", "ce-image"} <= {name for name, _cgroup in placed}
        assert cluster.outside(cluster.second) == []
        cluster.root(cluster.first, "scancel -u alice")
        assert job.wait() != 0
        assert errors(job.err) == []
    cluster.assert_nothing_left()


def test_a_task_without_memory_is_killed_and_said_to_be(cluster: Cluster) -> None:
    hungry = ["perl", "-e", "my $x = 'a' x 400_000_000; print 'alive'"]
    done = cluster.srun("-wvm2", "--mem=200", "--environment=debian", *hungry)
    assert "alive" not in done.stdout
    assert "Out Of Memory" in done.stderr
    assert done.returncode != 0
    assert errors(done.stderr) == []


def test_cores_and_devices_are_those_of_the_step(cluster: Cluster) -> None:
    cluster.root(cluster.second, "chmod 0666 /dev/loop[0-1]")
    write(cluster.first, "/etc/edf/loop.toml", f'{_IMAGE}devices = ["/dev/loop0"]\n')
    script = "head -c1 /dev/loop0 && grep Cpus_allowed_list /proc/self/status"
    step = ["-wvm2", "-c1", "--cpu-bind=cores", "--environment=loop", "sh", "-c", script]
    done = cluster.srun("--gres=gpu:1", *step)
    assert re.fullmatch(r"Cpus_allowed_list:\t\d\n", done.stdout), done.stderr
    refused = cluster.srun(*step)
    assert refused.returncode == 125
    assert "device '/dev/loop0': you may not open it" in errors(refused.stderr)[0]


def test_homes_and_images_are_on_nfs_and_closed_to_root(cluster: Cluster) -> None:
    types = cluster.root(cluster.second, "stat -f -c %T /home /apps")
    assert types == "nfs\nnfs\n"
    assert cluster.second.ssh("ls /home/alice").returncode != 0
    assert cluster.root(cluster.second, "cat /sys/module/apparmor/parameters/enabled") == "Y\n"
    done = cluster.srun(
        "-N2", "--environment=home", "sh", "-c", "pwd; echo $SLURM_PROCID >mine.$SLURM_PROCID"
    )
    assert (done.returncode, done.stdout) == (0, "/home/alice\n" * 2), done.stderr
    read = cluster.first.ssh("cat mine.*", "alice")
    assert read.stdout == "0\n1\n"
