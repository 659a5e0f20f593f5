"""Users who try to leave their step, or to hold it up, on pure cgroup v2."""

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.vm.cluster import STEP_S, Cluster, Job, gated_edf, write

_SLEEP = "sleep 4719"
# A copy of sleep that is in no file, looks like a kernel thread, ignores signals and has a session
# of its own.
_IN_NO_FILE = r"""
my $fd = syscall(319, $n = "x", 0);
open(my $in, "<:raw", "/usr/bin/sleep"); local $/; my $program = <$in>;
open(my $out, ">&=", $fd); binmode $out; print $out $program; $out->flush;
exit if fork;
syscall(112); $SIG{TERM} = $SIG{HUP} = $SIG{INT} = "IGNORE"; %ENV = ();
exec { "/proc/self/fd/$fd" } "[kworker/0:1]", "4719";
"""
# clone3 with CLONE_INTO_CGROUP into each directory
_INTO = r"""
for my $to (@ARGV) {
    sysopen(my $dir, $to, 0200000) or die "$to: $!";
    my $made = syscall(435, pack("Q11", 1 << 33, 0, 0, 0, 17, 0, 0, 0, 0, 0, fileno $dir), 88);
    exec "sleep", "4719" if $made == 0;
    print "$!\n";
}
"""
_OWN = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service"
_KEY = "/home/alice/.ssh/of-tests"
_LOGIN = (
    f"ssh -T -i {_KEY} -p 15263 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    " -o LogLevel=ERROR vm2"
)


@contextmanager
def _running(cluster: Cluster, name: str, script: str) -> Iterator[Job]:
    """Run a step on the second node; check that all its processes are in its cgroup; cancel it."""
    step = ["-wvm2", f"--environment={name}", "sh", "-c", f"{script}; echo up; exec {_SLEEP}"]
    with cluster.started(*step) as job:
        job.wait_for("up\n")
        yield job
        assert cluster.outside(cluster.second) == []
        cluster.root(cluster.first, "scancel -u alice")
        assert job.wait() != 0
        cluster.pair.await_idle(60)


def test_no_process_is_made_in_another_cgroup(cluster: Cluster, gated: str) -> None:
    write(cluster.second, "/gate/into", _INTO)
    # as a login of alice does; this cgroup belongs to her
    cluster.root(cluster.second, "systemctl start user@1000")
    places = f"/sys/fs/cgroup {_OWN} {_OWN}/mine"
    with _running(cluster, gated, f"mkdir -p {_OWN}/mine; perl /gate/into {places}") as job:
        assert job.out == "Permission denied\n" * 3 + "up\n", job.err
    cluster.root(cluster.second, f"rmdir {_OWN}/mine")


def test_a_program_that_is_in_no_file_is_in_the_step_and_ends_with_it(
    cluster: Cluster, gated: str
) -> None:
    write(cluster.second, "/gate/hide", _IN_NO_FILE)
    with _running(cluster, gated, "perl /gate/hide"):
        assert len(_in_no_file(cluster)) == 1
    assert _in_no_file(cluster) == []


def _in_no_file(cluster: Cluster) -> list[str]:
    found = "find /proc/[0-9]*/exe -lname /memfd:x* 2>/dev/null; true"
    return cluster.root(cluster.second, found).split()


@pytest.fixture
def login(cluster: Cluster, gated: str) -> Iterator[str]:
    """Yield an environment with an ssh server for alice."""
    made = f"mkdir -p -m 0700 ~/.ssh; [ -e {_KEY} ] || ssh-keygen -q -t ed25519 -N '' -f {_KEY}"
    assert cluster.first.ssh(made, "alice").returncode == 0
    hook = f'[annotations.com.hooks.ssh]\nenabled = "true"\nauthorize_ssh_key = "{_KEY}.pub"\n'
    write(cluster.first, f"/etc/edf/{gated}-login.toml", gated_edf("debian") + hook)
    yield f"{gated}-login"
    cluster.root(cluster.first, f"rm /etc/edf/{gated}-login.toml")


def test_what_a_login_leaves_running_is_in_the_step_and_ends_with_it(
    cluster: Cluster, login: str
) -> None:
    write(cluster.second, "/gate/hide", _IN_NO_FILE)
    quiet = ">/dev/null 2>&1 </dev/null"
    leave = f"setsid {_SLEEP} {quiet} & perl /gate/hide {quiet}; exit 7"
    with _running(cluster, login, "true"):
        done = cluster.first.ssh(f"{_LOGIN} {shlex.quote(leave)}", "alice", STEP_S)
        assert done.returncode == 7, done.stderr
        names = [name for name, _cgroup in cluster.placed(cluster.second)]
        assert names.count("sleep") == 2
        assert "dropbear" in names
        assert len(_in_no_file(cluster)) == 1
    assert _in_no_file(cluster) == []


def test_a_login_has_the_memory_of_its_job(cluster: Cluster, login: str) -> None:
    hungry = "perl -e '$x = q(a) x 1_500_000_000'; echo $?"
    with _running(cluster, login, "true"):
        done = cluster.first.ssh(f"{_LOGIN} {shlex.quote(hungry)}", "alice", STEP_S)
        assert done.stdout == "137\n", done.stderr


@pytest.mark.parametrize("part", ["launcher", "ce-guard", "ce-image", "crun", ".ce-init"])
def test_a_part_that_is_stopped_while_a_step_starts_holds_up_no_end(
    cluster: Cluster, gated: str, part: str
) -> None:
    cluster.root(cluster.second, "rm -rf /var/tmp/ce-answers-*")
    stop = f"echo hunting; until pkill -STOP -x -u alice {part}; do :; done"
    argv = cluster.second.ssh_argv(f"timeout 120 sh -c '{stop}'")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as hunt:
        assert hunt.stdout is not None
        # crun takes less time than an ssh login
        assert hunt.stdout.readline() == "hunting\n"
        with cluster.started("-wvm2", f"--environment={gated}", "sh", "-c", _SLEEP) as job:
            assert hunt.wait() == 0
            assert cluster.outside(cluster.second) == []
            cluster.root(cluster.first, "scancel -u alice")
            assert job.wait() != 0
            cluster.pair.await_idle(60)
