"""com.hooks.ssh: logins to the containers of one job, and between them."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm import procfs
from tests.slurm.cluster import ALICE, BOB, Cluster
from tests.slurm.job import Job, job_id, started
from tests.slurm.leftovers import assert_nothing_left
from tests.slurm.login import PORT, Laptop, edf, entries, make_key, ports, step, variables
from tests.slurm.polling import until
from tests.slurm.terminal import terminal

_STRANGE = "a 'single' \"double\" \\ back\nsecond line\t$HOME `id` =;#"
_MORE = f"""
startup = ["export FROM_STARTUP='two words'"]
[env]
NCCL_NET = "AWS Libfabric"
STRANGE = {json.dumps(_STRANGE).replace("$", "$$").replace("`", "$`")}
"""
# Variables that a shell or a login sets for itself, that Slurm sets for a single task, or that
# Slurm 24.11 adds after the environment of logins has been written: the times of the job.
_OWN = re.compile(
    r"^(_|SHLVL|SLURM_JOB_GID|OLDPWD|PWD|TERM|SSH_\w+|SLURM_(PROCID|LOCALID|NODEID|TASK_PID|GTIDS|CPUS_ON_NODE"
    r"|CPU_BIND\w*|DISTRIBUTION|LAUNCH_NODE_IPADDR|STEPMGR|PROTOCOL\w*)|SLURMD_\w+|PMI\w*|TMPDIR|SLURM_TOPOLOGY_ADDR"
    r"|SLURM_JOB_(START|END)_TIME|SLURM_OOM_KILL_STEP)$"
)


@pytest.fixture(scope="module")
def key(cluster: Cluster) -> Path:
    return make_key(cluster)


class Running:
    """A job of two nodes that the tests of logins share."""

    def __init__(self, cluster: Cluster, key: Path, job: Job) -> None:
        until("both tasks", lambda: job.out.splitlines().count("up") == 2)
        self.id = job_id(cluster)
        self.ports = ports(cluster, self.id, 2)
        self.laptop = Laptop(cluster, key, self.ports["n1"])
        self.job = job


@pytest.fixture(scope="module")
def running(cluster: Cluster, key: Path) -> Iterator[Running]:
    with step(cluster, edf(cluster, key, _MORE), "-N2", "-n2") as job:
        yield Running(cluster, key, job)
    assert_nothing_left(cluster)


# ---- a login ---------------------------------------------------------------------------------


def _common(found: dict[str, str]) -> dict[str, str]:
    """Remove the variables that a login or a task has for itself."""
    return {name: value for name, value in found.items() if not _OWN.match(name)}


def test_a_login_has_exactly_the_environment_of_the_tasks(running: Running) -> None:
    # cat reads its own environment. A shell would open the file for tr before it executes tr, and
    # the environment would be gone.
    block = running.laptop.ssh("cat /proc/self/environ | tr '\\0' '\\001'").stdout
    found = _common(entries(block, "\1"))
    assert found == _common(variables(running.job))
    assert found["STRANGE"] == _STRANGE
    assert found["NCCL_NET"] == "AWS Libfabric"
    assert found["FROM_STARTUP"] == "two words"


def test_a_login_is_in_the_container_and_passes_the_exit_code_on(running: Running) -> None:
    done = running.laptop.ssh("cat /etc/os-release; exit 7")
    assert (done.returncode, "Container Engine demo" in done.stdout) == (7, True)


def test_a_command_that_ends_like_an_sftp_server_is_run(running: Running) -> None:
    for command in ("echo a/sftp-server", "/bin/echo a/sftp-server", "/bin/echo a;/sftp-server"):
        assert running.laptop.ssh(command).stdout.startswith("a"), command


def _printed_bytes(port: int) -> int:
    """Return how much the output of the server on this port has grown to, which is in memory."""
    (server,) = [p for p in procfs.processes() if p.command.endswith(f"-p {port}")]
    output = procfs.PROC / str(server.pid) / "fd/2"
    assert "memfd:" in str(output.readlink())
    return output.stat().st_size


def test_clients_do_not_fill_the_jobs_memory(running: Running) -> None:
    port = running.laptop.port
    before = _printed_bytes(port)
    for _ in range(3):
        assert running.laptop.ssh("true").returncode == 0
    assert _printed_bytes(port) == before


def test_a_login_gets_a_terminal_also_where_the_container_has_no_ptmx(
    cluster: Cluster, running: Running
) -> None:
    with terminal(
        cluster, *running.laptop.argv("tty; test -w $(tty) && echo writable", more=["-t"])
    ) as it:
        it.wait_for(r"/dev/pts/\d+\s+writable")
        assert it.wait() == 0


def test_an_interactive_login_gets_a_shell_that_does_not_change_path(
    cluster: Cluster, running: Running
) -> None:
    with terminal(cluster, *running.laptop.argv()) as it:
        it.type("echo shell=$0 path=$PATH; exit 3\n")
        it.wait_for(r"shell=\S*sh path=/usr/local/sbin:")
        assert it.wait() == 3


def test_the_server_appears_as_dropbear_with_its_port(running: Running) -> None:
    commands = [p.command for p in procfs.processes() if p.comm == "dropbear"]
    expected = rf"/opt/oci-hooks/ssh/dropbear/bin/dropbear .*-p {running.ports['n1']}"
    assert any(re.fullmatch(expected, command.strip()) for command in commands), commands


def test_a_port_in_use_is_replaced_by_the_next_and_printed(running: Running) -> None:
    assert set(running.ports.values()) == {PORT, PORT + 1}
    other = next(node for node, port in running.ports.items() if port == PORT + 1)
    text = f"{other}: hook ssh: the ssh server listens on port {PORT + 1}: {PORT} is in use"
    assert text in running.job.err


def test_the_server_and_the_tasks_do_not_hold_the_plan_with_its_secret(running: Running) -> None:
    names = {"dropbear", "ce-reaper", "sleep"}
    holders = [p for p in procfs.processes() if p.comm in names]
    assert {p.comm for p in holders} == names
    for process in holders:
        assert not [file for file in process.open_files() if "ce-plan" in file], process
    assert "secret" not in running.laptop.ssh("env").stdout


def test_another_key_is_refused(cluster: Cluster, running: Running) -> None:
    stranger = Laptop(cluster, make_key(cluster), running.ports["n1"])
    done = stranger.ssh("true")
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


def test_passwords_are_not_asked_for(running: Running) -> None:
    done = running.laptop.ssh("true", more=["-oPubkeyAuthentication=no"])
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


def test_nobody_else_gets_in_with_the_right_key(cluster: Cluster, running: Running) -> None:
    done = Laptop(cluster, running.laptop.key, running.ports["n1"], BOB).ssh("true")
    assert (done.returncode, "Permission denied" in done.stderr) == (255, True)


def test_a_port_of_the_node_is_forwarded(cluster: Cluster, running: Running) -> None:
    laptop = running.laptop
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(10)
        way = ["-W", f"127.0.0.1:{server.getsockname()[1]}", "-p", str(laptop.port)]
        with started(cluster, "ssh", *laptop.options(), *way, f"{ALICE}@localhost") as client:
            with server.accept()[0] as connection:
                connection.sendall(b"through\n")
            assert client.wait().stdout == "through\n"


# ---- between containers ----------------------------------------------------------------------


def test_containers_of_a_job_log_in_to_one_another_without_a_password(running: Running) -> None:
    line = 'ssh -oBatchMode=yes n2 "ssh -oBatchMode=yes n1 printenv SLURM_NODEID"; ssh n2 exit 5'
    done = running.laptop.ssh(line)
    assert (done.stdout, done.returncode) == ("0\n", 5), done.stderr


def test_files_go_from_container_to_container(running: Running) -> None:
    line = "echo text >/tmp/here && scp -q /tmp/here n2:/tmp/there && ssh n2 cat /tmp/there"
    assert running.laptop.ssh(line).stdout == "text\n"


# ---- ce ssh, ce ssh-config -------------------------------------------------------------------


def _ce(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    return cluster.run([str(cluster.prefix / "bin/ce"), *words])


def test_ce_ssh_logs_in_to_a_job(cluster: Cluster, running: Running) -> None:
    done = _ce(cluster, "ssh", "-w", "n2", running.id, "--", "sh", "-c", 'echo "$SLURM_NODEID $0"')
    assert (done.stdout, done.returncode) == ("1 sh\n", 0), done.stderr


def test_ce_ssh_config_is_all_that_a_laptop_needs(cluster: Cluster, running: Running) -> None:
    text = _ce(cluster, "ssh-config", "--jump", "", running.id).stdout
    config = cluster.write(text)
    login = ["-i", str(running.laptop.key), f"ce-{running.id}-n2"]
    done = cluster.run(["ssh", "-F", str(config), *login, "echo in"])
    assert (done.stdout, done.stderr) == ("in\n", "")
    assert (
        f"    ProxyJump {ALICE}@login1\n"
        in _ce(cluster, "ssh-config", "--jump", "login1", running.id).stdout
    )


def test_ce_ssh_says_when_it_knows_no_server(cluster: Cluster) -> None:
    done = _ce(cluster, "ssh", "987654")
    assert done.returncode == 255
    assert done.stderr.startswith("ce: error: 987654: no ssh server of yours is known")
