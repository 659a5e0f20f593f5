"""Steps whose machine, file server or engine changes under them. These tests take minutes each."""

from collections.abc import Iterator

import pytest

from tests.slurm.polling import until
from tests.vm import pair
from tests.vm.cluster import DROP_CACHES, STEP_S, Cluster, errors, write

pytestmark = pytest.mark.vm_long

_AWAY_S = 60
_SLEEPS = ["sh", "-c", "echo up; exec sleep 4714"]
_RUNS = ["-N2", "--environment=home", *_SLEEPS]


def _failed_units(cluster: Cluster) -> str:
    return cluster.root(cluster.second, "systemctl list-units --failed --plain --no-legend")


def _assert_usable(cluster: Cluster) -> None:
    """Check that a container starts on the second node, with image and home."""
    done = cluster.srun("-wvm2", "--environment=home", "pwd")
    assert (done.returncode, done.stdout, errors(done.stderr)) == (0, "/home/alice\n", [])


def test_a_machine_that_loses_its_power_ends_its_steps_and_comes_back_clean(
    cluster: Cluster, each: str
) -> None:
    of_tasks = ["-N2", f"--environment={each}", *_SLEEPS]
    with cluster.started(*_RUNS) as one, cluster.started(*of_tasks) as other:
        for job in (one, other):
            job.wait_for("up\nup\n")
        cluster.second.cut_power()
        cluster.second.start()
        cluster.pair.await_login(cluster.second)
        for job in (one, other):
            assert job.wait() != 0
            assert errors(job.err) == []
    assert _failed_units(cluster) == ""
    _assert_usable(cluster)


def test_a_machine_that_is_rebooted_ends_the_step_and_comes_back_clean(cluster: Cluster) -> None:
    with cluster.started(*_RUNS) as job:
        job.wait_for("up\nup\n")
        cluster.second.reboot(pair.BOOT_S)
        # If the machine is back before Slurm misses it, the other machine's task goes on.
        cluster.root(cluster.first, "scancel -u alice")
        assert job.wait() != 0
        assert "container was killed" not in job.err
    cluster.pair.await_idle()
    assert _failed_units(cluster) == ""
    busy = "journalctl -q -b -1 | grep -e 'Failed unmounting' -e 'target is busy' || true"
    assert cluster.root(cluster.second, busy) == ""
    _assert_usable(cluster)


def test_a_container_starts_when_the_file_server_is_back(cluster: Cluster, gated: str) -> None:
    srun = "echo up; while [ ! -e /gate/go ]; do sleep 1; done; srun cat /etc/debian_version"
    script = ["-o/gate/out", "-e/gate/err", "--wrap", srun]
    queued = ["sbatch", "--parsable", "-wvm2", "-D/", f"--environment={gated}", *script]
    job = cluster.alice(*queued).strip()
    until("the script", lambda: "up" in cluster.root(cluster.second, "cat /gate/out; true"), STEP_S)
    cluster.root(cluster.second, DROP_CACHES)
    with cluster.without_server():
        cluster.root(cluster.second, f"touch /gate/go; sleep {_AWAY_S}")
        assert (cluster.state(job), cluster.root(cluster.second, "cat /gate/out")) == (
            "RUNNING",
            "up\n",
        )
    until("the end of the job", lambda: cluster.state(job) == "COMPLETED", STEP_S)
    assert cluster.root(cluster.second, "cat /gate/out").startswith("up\n13")
    assert errors(cluster.root(cluster.second, "cat /gate/err")) == []


def test_a_batch_job_goes_on_when_file_server_and_controller_have_been_rebooted(
    cluster: Cluster, gated: str
) -> None:
    read = "echo up; while [ ! -e /gate/go ]; do sleep 1; done; cat /usr/bin/* >/dev/null"
    script = f"srun sh -c '{read} && echo read'; srun --environment={gated} echo next"
    queued = ["sbatch", "--parsable", "-wvm2", "-D/", f"--environment={gated}", "-o/gate/out"]
    job = cluster.alice(*queued, "-e/gate/err", "--wrap", script).strip()
    until("the step", lambda: "up" in cluster.root(cluster.second, "cat /gate/out; true"), STEP_S)
    cluster.root(cluster.second, DROP_CACHES)
    cluster.first.reboot(pair.BOOT_S)
    cluster.pair.await_login(cluster.first)
    answers = "scontrol ping | grep -c UP"
    until("the controller", lambda: cluster.first.ssh(answers).returncode == 0, STEP_S)
    cluster.root(cluster.second, "touch /gate/go")
    until("the end of the job", lambda: cluster.state(job) == "COMPLETED", STEP_S)
    assert cluster.root(cluster.second, "cat /gate/out") == "up\nread\nnext\n"
    assert errors(cluster.root(cluster.second, "cat /gate/err")) == []


_LOCAL = "/var/local/scratch"
_KEPT = f"find {_LOCAL} -mindepth 1; true"
# as docs/admin/install.md says
_TMPFILES = f"R! {_LOCAL}/ce-kept-*"


@pytest.fixture
def kept_on_disk(cluster: Cluster) -> Iterator[None]:
    """Have what named containers write on the nodes' disks, which keep it after a loss of power."""
    files = {
        "/etc/container-engine/config.toml": f'kept_dir = "{_LOCAL}"',
        "/etc/tmpfiles.d/container-engine.conf": _TMPFILES,
    }
    for machine in cluster.pair.machines:
        cluster.root(machine, f"install -d -m 1777 {_LOCAL}")
        for path, text in files.items():
            write(machine, path, text)
    yield
    for machine in cluster.pair.machines:
        cluster.root(machine, f"rm -rf {_LOCAL} {' '.join(files)}")


@pytest.mark.usefixtures("kept_on_disk")
def test_a_job_whose_node_loses_its_power_begins_anew_on_another(cluster: Cluster) -> None:
    named = "srun --environment=debian --container-name=a sh -c"
    look = f"{named} 'cat /mark 2>/dev/null || echo new; echo old >/mark'"
    waits = f"[ -n \"$SLURM_RESTART_COUNT\" ] || {named} 'echo up; exec sleep 4714'"
    script = '#!/bin/bash\necho "run ${SLURM_RESTART_COUNT:-0} $SLURMD_NODENAME"\n'
    write(cluster.first, "/tmp/script", f"{script}{look}\n{look}\n{waits}", "0755")
    output = "/home/alice/again.%j"
    queued = ["sbatch", "--parsable", "--requeue", "--open-mode=append", f"-o{output}"]
    state = "scontrol update nodename={0} state={1} reason=test"
    cluster.root(cluster.first, state.format("vm1", "drain"))
    job = cluster.alice(*queued, "/tmp/script").strip()
    said = f"cat /srv/home/alice/again.{job}; true"
    until("the last step", lambda: "up" in cluster.root(cluster.first, said), STEP_S)
    cluster.root(cluster.first, state.format("vm1", "resume"))
    assert "ce-kept-" in cluster.root(cluster.second, f"sync; {_KEPT}")
    cluster.second.cut_power()
    for change in ("down", "drain"):
        cluster.root(cluster.first, state.format("vm2", change))
    cluster.second.start()
    cluster.pair.await_login(cluster.second)
    # Slurm starts a requeued job after two minutes.
    until("the end of the job", lambda: cluster.state(job) == "COMPLETED", STEP_S)
    cluster.root(cluster.first, state.format("vm2", "resume"))
    text = cluster.root(cluster.first, f"{said}; rm /srv/home/alice/again.{job}")
    lines = [line for line in text.splitlines() if ": " not in line]
    assert lines == ["run 0 vm2", "new", "old", "up", "run 1 vm1", "new", "old"], text
    assert errors(text) == []
    assert cluster.root(cluster.second, _KEPT) == ""
    assert "vm2" not in cluster.alice("ce", "trace", job)
    cluster.pair.await_idle(STEP_S)
    assert _failed_units(cluster) == ""
    _assert_usable(cluster)
