"""com.hooks.ssh: images, users, the end of a job, and refusals."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slurm import procfs
from tests.slurm.cluster import ALICE, BOB, Cluster, causes
from tests.slurm.job import job_id, started
from tests.slurm.leftovers import assert_nothing_left
from tests.slurm.login import PORT, Laptop, edf, make_key, ports, recorded, step
from tests.slurm.polling import until
from tests.slurm.site import Site
from tests.slurm.terminal import terminal


@pytest.fixture(scope="module")
def key(cluster: Cluster) -> Path:
    return make_key(cluster)


@pytest.fixture(autouse=True)
def _tidy(cluster: Cluster) -> Iterator[None]:
    yield
    assert_nothing_left(cluster)


@contextmanager
def _serving(cluster: Cluster, name: str, key: Path, *words: str) -> Iterator[Laptop]:
    """Run a job of one node with the environment `name`; yield a client for its server."""
    with step(cluster, name, *words) as job:
        until("a running job", lambda: "up" in job.out or job.process.poll() is not None)
        assert job.process.poll() is None, job.err
        [port] = ports(cluster, job_id(cluster)).values()
        yield Laptop(cluster, key, port)


# ---- images ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "writable"), [("busybox", "true"), ("busybox", "false"), ("musl", "true")]
)
def test_files_are_copied_where_the_image_has_no_scp_and_another_libc_or_none(
    cluster: Cluster, key: Path, image: str, writable: str
) -> None:
    more = f'writable = {writable}\nmounts = ["tmpfs:/data"]\n'
    with _serving(cluster, edf(cluster, key, more, image), key) as laptop:
        source = cluster.write("content\n", owner=ALICE)
        assert laptop.copy("scp", "-O", str(source), "@/data/old").stderr == ""
        assert laptop.copy("scp", "-s", str(source), "@/data/new").stderr == ""
        done = laptop.ssh("cat /data/old /data/new; tar --help 2>&1 | head -n1; ssh -V 2>&1")
        assert done.stdout.startswith("content\ncontent\nBusyBox"), done
        assert "OpenSSH" in done.stdout


def test_an_image_without_a_shell_runs_plain_commands_and_sftp(cluster: Cluster, key: Path) -> None:
    name = edf(cluster, key, image="static")
    argv = ["srun", "-N1", f"--environment={name}", "/bin/probe", "read", "/dev/stdin"]
    with started(cluster, *argv):
        [port] = ports(cluster, job_id(cluster)).values()
        laptop = Laptop(cluster, key, port)
        source = cluster.write("content\n", owner=ALICE)
        assert laptop.copy("scp", "-s", str(source), "@/tmp/new").stderr == ""
        assert "this image has no shell" in laptop.ssh("echo a; echo b").stderr
        assert laptop.ssh("/bin/probe").stdout.startswith("rank=none uid=")
        assert laptop.ssh("/no/such/command").returncode == 127


_HOSTILE = """
Host *
PKCS11Provider /x.so
SecurityKeyProvider /x.so
KnownHostsCommand /x
PermitLocalCommand yes
LocalCommand /x
RemoteCommand /x
ProxyCommand /x
"""


def test_an_images_ssh_config_names_nothing_for_logins_between_containers(
    cluster: Cluster, key: Path
) -> None:
    with _serving(cluster, edf(cluster, key, "writable = true\n", "busybox"), key) as laptop:
        hostile = f"echo '{_HOSTILE}' >>/etc/ssh/ssh_config"
        done = laptop.ssh(f"{hostile}; ssh $SLURMD_NODENAME echo in")
        assert (done.stdout, done.stderr) == ("in\n", "")


def test_keys_lie_outside_home_also_where_home_is_mounted(cluster: Cluster, key: Path) -> None:
    home = cluster.home()
    before = sorted(path.name for path in home.glob(".ssh/*"))
    with _serving(cluster, edf(cluster, key, 'mounts = ["${HOME}"]\n'), key) as laptop:
        assert laptop.ssh("pwd").stdout == f"{home}\n"
    assert sorted(path.name for path in home.glob(".ssh/*")) == before


def test_a_login_of_root_is_recorded_nowhere_that_the_image_names(
    cluster: Cluster, key: Path
) -> None:
    """As the user of /var/log's files, the server would follow such links into mounted files."""
    records = ("/var/log/wtmp", "/var/log/lastlog", "/var/run/utmp")
    precious = [cluster.write("precious", owner=ALICE) for _ in records]
    links = [f"ln -sf {file} {name}" for file, name in zip(precious, records, strict=True)]
    mounts = ", ".join(f'"{file}"' for file in precious)
    more = f"""writable = true
mounts = [{mounts}]
startup = ["mkdir -p /var/log /var/run; {"; ".join(links)}"]
[annotations]
com.ce.root_remap = "true"
"""
    with (
        _serving(cluster, edf(cluster, key, more), key) as laptop,
        terminal(cluster, *laptop.argv("id -u; tty", more=["-t"])) as it,
    ):
        it.wait_for(r"^0\s+/dev/pts/\d+")
        assert it.wait() == 0
    assert [file.read_text() for file in precious] == ["precious"] * len(records)


# ---- several jobs, and the end ----------------------------------------------------------------


def test_two_users_and_two_jobs_on_one_node(cluster: Cluster, key: Path) -> None:
    mine, bobs = edf(cluster, key), make_key(cluster, BOB)
    theirs = edf(cluster, bobs)
    with (
        step(cluster, mine, "-w", "n1") as first,
        step(cluster, theirs, "-w", "n1", user=BOB) as second,
    ):
        until("both tasks", lambda: "\nup\n" in first.out and "\nup\n" in second.out)
        [one] = ports(cluster, job_id(cluster)).values()
        [two] = ports(cluster, job_id(cluster, BOB), user=BOB).values()
        assert Laptop(cluster, key, one).ssh("id -un").stdout == f"{ALICE}\n"
        assert "Permission denied" in Laptop(cluster, key, two).ssh("true").stderr
        assert "Permission denied" in Laptop(cluster, bobs, one, BOB).ssh("true").stderr


def test_the_keys_of_a_job_open_no_other(cluster: Cluster, key: Path) -> None:
    with _serving(cluster, edf(cluster, key), key, "-w", "n1") as laptop:
        private = laptop.ssh("cat /opt/oci-hooks/ssh/job/id_ed25519").stdout
        stolen = cluster.write(private, mode=0o600, owner=ALICE)
        assert Laptop(cluster, stolen, laptop.port).ssh("echo own").stdout == "own\n"
        with step(cluster, edf(cluster, key), "-w", "n1") as job:
            until("the task", lambda: "\nup\n" in job.out)
            done = Laptop(cluster, stolen, laptop.port + 1).ssh("true")
            assert "Permission denied (publickey)" in done.stderr


_VICTIMS = {"slurmstepd": "slurmstepd: ", "guard": "ce-guard", "reaper": "ce-reaper"}


@pytest.mark.parametrize("end", ["scancel", "slurmstepd", "guard", "reaper"])
def test_the_server_and_its_logins_go_with_the_job(cluster: Cluster, key: Path, end: str) -> None:
    records = cluster.home() / ".cache/container-engine/hooks/ssh"
    before = set(records.glob("*"))
    with _serving(cluster, edf(cluster, key), key) as laptop:
        assert set(records.glob("*")) > before
        left = "nohup setsid sleep 4321 >/dev/null 2>&1 </dev/null & exec cat"
        argv = ["ssh", *laptop.options(), "-p", str(laptop.port), f"{ALICE}@localhost", left]
        with started(cluster, *argv):
            until("the login", lambda: _pids("sleep 4321"))
            for pid in _pids(_VICTIMS[end]) if end in _VICTIMS else []:
                os.kill(pid, signal.SIGKILL)
            if end in ("scancel", "reaper"):
                cluster.cancel_all(ALICE)
            until("the login's end", lambda: not _pids("sleep 4321") and not _pids("dropbear"), 20)
    until("the records' end", lambda: set(records.glob("*")) == before)


def _pids(word: str) -> list[int]:
    return [p.pid for p in procfs.processes() if p.lives and word in p.command]


@pytest.mark.parametrize("listen", ["lo", "127.0.0.1"])
def test_a_site_says_where_the_servers_listen(
    cluster: Cluster, site: Site, key: Path, listen: str
) -> None:
    site.hook("ssh", f'settings.listen = "{listen}"\n', whole=False)
    with step(cluster, edf(cluster, key), "-N2") as job:
        until("both tasks", lambda: job.out.count("up\n") == 2)
        number = job_id(cluster)
        found = ports(cluster, number, 2)
        assert [_listening(port) for port in found.values()] == [["0100007F"]] * 2
        assert Laptop(cluster, key, found["n1"]).ssh("ssh n2 echo there").stdout == "there\n"
        ce = str(cluster.prefix / "bin/ce")
        assert cluster.run([ce, "ssh-config", number]).stdout.count("HostName 127.0.0.1\n") == 2


def test_an_interface_that_a_node_lacks_is_named(cluster: Cluster, site: Site, key: Path) -> None:
    site.hook("ssh", 'settings.listen = "hsn9"\n', whole=False)
    done = cluster.srun(f"--environment={edf(cluster, key)}", "true")
    assert done.returncode == 125
    assert "hook ssh: settings.listen of the site: 'hsn9': no such device" in causes(done)[0]


def _listening(port: int) -> list[str]:
    """Return the addresses that listen on this port, in the kernel's notation."""
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    ending = f":{port:04X}"
    return [
        row[1].removesuffix(ending) for row in rows if row[1].endswith(ending) and row[3] == "0A"
    ]


# ---- several steps of one job ------------------------------------------------------------------


@contextmanager
def _allocated(cluster: Cluster) -> Iterator[str]:
    """Yield a job of two nodes without a step of its own."""
    with started(cluster, "salloc", "-N2", "cat"):
        yield job_id(cluster)


@contextmanager
def _step_of(cluster: Cluster, job: str, name: str, node: str) -> Iterator[int]:
    """Run a step of the job on one node, to a regular end; yield its ssh server's port."""
    srun = ["srun", f"--jobid={job}", "--overlap", "-n1", "-w", node, f"--environment={name}"]
    with started(cluster, *srun, "sh", "-c", "echo up; cat") as added:
        added.wait_for_lines(1)
        yield ports(cluster, job, nodes=None)[node]
        added.close_input()
        assert added.wait().returncode == 0, added.err
    # srun ends before the server does, and the next step must get the server's port.
    until("the record's end", lambda: node not in recorded(cluster, job))


def test_whoever_trusts_a_job_once_logs_in_to_all_its_steps(cluster: Cluster, key: Path) -> None:
    """Steps of a job have one host key; a job that later has the same port has another key."""
    name, known = edf(cluster, key), cluster.write("", mode=0o600, owner=ALICE)
    trust = (f"UserKnownHostsFile={known}", "StrictHostKeyChecking=accept-new")
    with _allocated(cluster) as job:
        for _ in range(2):
            with _step_of(cluster, job, name, "n1") as port:
                done = Laptop(cluster, key, port, trust=trust).ssh("echo in")
                assert (done.stdout, port) == ("in\n", PORT), done.stderr
    with _allocated(cluster) as job, _step_of(cluster, job, name, "n1") as port:
        done = Laptop(cluster, key, port, trust=trust).ssh("echo in")
        assert (done.returncode, port) == (255, PORT)
        assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr


def test_what_ce_ssh_config_printed_is_good_for_the_next_step(cluster: Cluster, key: Path) -> None:
    name, ce = edf(cluster, key), str(cluster.prefix / "bin/ce")
    with _allocated(cluster) as job:
        with _step_of(cluster, job, name, "n1"):
            config = cluster.write(cluster.run([ce, "ssh-config", "--jump", "", job]).stdout)
        with _step_of(cluster, job, name, "n1"):
            login = ["ssh", "-F", str(config), "-i", str(key), f"ce-{job}"]
            assert cluster.run([*login, "printenv SLURM_STEP_ID"]).stdout == "1\n"
            assert cluster.run([ce, "ssh", job, "printenv SLURM_STEP_ID"]).stdout == "1\n"


def test_containers_of_two_steps_log_in_to_one_another(cluster: Cluster, key: Path) -> None:
    name = edf(cluster, key)
    records = cluster.home() / ".cache/container-engine/hooks/ssh"
    before = set(records.glob("*"))
    with (
        _allocated(cluster) as job,
        _step_of(cluster, job, name, "n1") as port,
        _step_of(cluster, job, name, "n2"),
    ):
        line = "ssh -oBatchMode=yes n2 printenv SLURM_STEP_ID SLURMD_NODENAME"
        done = Laptop(cluster, key, port).ssh(line)
        assert (done.stdout, done.returncode) == ("1\nn2\n", 0), done.stderr
    until("the records' end", lambda: set(records.glob("*")) == before)


# ---- off, wrong, missing ----------------------------------------------------------------------


def test_without_the_hook_there_is_no_server(cluster: Cluster, demo: str) -> None:
    done = cluster.srun(f"--environment={demo}", "sh", "-c", "ls /opt/oci-hooks; ps -eo args")
    assert "No such file" in done.stderr
    # The server of a previous test may still be a zombie that the machine's init has to reap.
    assert [line for line in done.stdout.splitlines() if "/dropbear" in line] == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('authorize_ssh_key = "/no/such.pub"', "'/no/such.pub': does not exist"),
        ('authorize_ssh_key = "{private}"', "'{private}' contains a private key"),
        ('authorize_ssh_key = "ssh-ed25519 AAAA"', "found the text of a key"),
        ('port = "99999"', "'99999' is not the number of a port"),
        ('prot = "1"', "did you mean"),
    ],
)
def test_wrong_parameters_are_refused_or_named_at_submit(
    cluster: Cluster, key: Path, line: str, message: str
) -> None:
    line, message = line.replace("{private}", str(key)), message.replace("{private}", str(key))
    text = f'[annotations.com.hooks.ssh]\nenabled = "true"\n{line}\n'
    done = cluster.run(["salloc", f"--environment={cluster.edf(text)}", "true"])
    assert message in done.stderr
    assert (done.returncode == 125) == ("error" in done.stderr)


def test_a_node_without_the_server_says_so(cluster: Cluster, key: Path) -> None:
    programs = cluster.prefix / "libexec/container-engine/ssh"
    aside = programs.with_name("ssh.aside")
    shutil.move(programs, aside)
    try:
        done = cluster.srun(f"--environment={edf(cluster, key)}", "true")
    finally:
        shutil.move(aside, programs)
    assert done.returncode == 125
    assert "hook ssh: " in causes(done)[0]
    assert "does not exist on this node" in causes(done)[0]
