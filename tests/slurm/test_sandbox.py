"""The sandbox itself, independent of the engine."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from ce_sandbox.layout import USERS, Layout
from ce_sandbox.processes import belonging_to
from tests.slurm.cluster import ALICE, BOB, ROOT, Cluster, sandbox
from tests.slurm.polling import until
from tests.slurm.procfs import living
from tests.slurm.test_starts_again import answers_of


def _daemons() -> dict[str, int]:
    """Return the running daemons by name, with their pids."""
    lines = [line.split() for line in sandbox("status").stdout.splitlines() if " pid " in line]
    return {words[0]: int(words[-1]) for words in lines}


def test_both_nodes_run_native_tasks(cluster: Cluster) -> None:
    done = cluster.srun("-N2", "-n4", "printenv", "SLURMD_NODENAME")
    assert sorted(done.stdout.split()) == ["n1", "n1", "n2", "n2"]


@pytest.mark.parametrize("code", [0, 3, 125])
def test_a_native_exit_code_reaches_the_caller(cluster: Cluster, code: int) -> None:
    assert cluster.srun("sh", "-c", f"exit {code}").returncode == code


@pytest.mark.usefixtures("cluster")
def test_a_command_that_does_not_exist_is_127_as_in_the_shell() -> None:
    done = sandbox("run", "no-such-command")
    assert (done.returncode, done.stderr) == (
        127,
        "sandbox: error: no-such-command: No such file or directory\n",
    )


def test_without_a_command_one_is_the_user_at_home(cluster: Cluster) -> None:
    done = subprocess.run(
        [ROOT / "sandbox" / "run"],
        input="pwd; id -un; command -v ce\n",
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    ce = cluster.prefix / "bin" / "ce"
    assert done.stdout.splitlines() == [str(cluster.home()), ALICE, str(ce)]


def test_a_login_shell_finds_the_programs(cluster: Cluster) -> None:
    done = sandbox("run", "bash", "-l", "-c", "command -v ce")
    assert (done.returncode, done.stdout) == (0, f"{cluster.prefix}/bin/ce\n"), done.stderr


def test_a_command_without_a_shell_has_the_directory_that_environments_name(
    cluster: Cluster,
) -> None:
    run, env = [str(ROOT / "sandbox" / "run"), "printenv", "PWD"], cluster.environment()
    done = subprocess.run(run, cwd="/usr", env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "/usr\n"), done.stderr


def test_a_user_has_a_scratch_directory_as_the_quick_starts_expect(cluster: Cluster) -> None:
    done = sandbox("run", "-u", BOB, "sh", "-c", 'echo "$SCRATCH"; test -w "$SCRATCH"')
    assert (done.returncode, done.stdout) == (0, f"{cluster.home(BOB)}/scratch\n"), done.stderr


@pytest.mark.usefixtures("cluster")
def test_up_again_keeps_the_daemons() -> None:
    before = _daemons()
    assert set(before) == {"munged", "slurmctld", "slurmd-n1", "slurmd-n2"}
    assert sandbox("up").returncode == 0
    assert _daemons() == before


def test_a_daemon_that_died_comes_back_with_the_next_up(cluster: Cluster) -> None:
    os.kill(_daemons()["slurmd-n2"], 9)
    assert sandbox("status").returncode == 1
    assert sandbox("up").returncode == 0
    assert sandbox("status").returncode == 0
    assert cluster.srun("-N2", "true").returncode == 0


def test_a_node_that_slurm_has_drained_serves_again_after_up(cluster: Cluster) -> None:
    drain = ["scontrol", "update", "nodename=n2", "state=drain", "reason=test"]
    environment = {**os.environ, "SLURM_CONF": str(cluster.dir / "etc" / "slurm.conf")}
    subprocess.run(drain, env=environment, check=True)
    assert sandbox("up").returncode == 0
    assert cluster.srun("-N2", "true").returncode == 0


def test_nothing_of_it_can_be_reached_from_other_machines(cluster: Cluster) -> None:
    """The daemons listen on 127.0.0.1 alone where the machine's name means that address."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1].split(":") for row in rows if row[3] == "0A"]
    layout = Layout(cluster.dir)
    first = layout.first_node_port(cluster.nodes)
    ports = (layout.controller_port, first, first + 1)
    mine = [place for place, port in listening if int(port, 16) in ports]
    assert len(mine) == 3
    if "NoInAddrAny" in (cluster.dir / "etc" / "slurm.conf").read_text():
        assert set(mine) == {"0100007F"}  # 127.0.0.1, its first byte last


def test_users_are_ordinary_and_have_no_subordinate_ids(cluster: Cluster) -> None:
    for user in (ALICE, BOB):
        assert pwd.getpwnam(user).pw_uid >= 1000
        assert cluster.home(user).parent == cluster.dir / "home"
        for file in (Path("/etc/subuid"), Path("/etc/subgid")):
            assert user not in file.read_text() if file.exists() else True
    assert "ce-project" in cluster.run(["id", "-nG"]).stdout.split()
    assert "ce-project" not in cluster.run(["id", "-nG"], user=BOB).stdout.split()


def test_tasks_run_as_the_user_with_all_groups(cluster: Cluster) -> None:
    here = cluster.run(["id"]).stdout
    assert f"({ALICE})" in here
    assert cluster.srun("id").stdout == here


def test_nothing_of_the_callers_environment_reaches_the_user(cluster: Cluster) -> None:
    done = subprocess.run(
        [ROOT / "sandbox" / "run", "env"],
        env={"PATH": os.environ["PATH"], "SECRET": "x", "CE_SANDBOX_DIR": str(cluster.dir)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert "SECRET" not in variables
    assert variables["HOME"] == str(cluster.home())
    assert variables["SLURM_CONF"] == str(cluster.dir / "etc" / "slurm.conf")


def test_jobs_of_two_users_share_the_nodes(cluster: Cluster) -> None:
    with cluster.popen(["srun", "-N2", "sh", "-c", "echo up; cat"]) as first:
        assert first.line() == "up\n"
        assert cluster.srun("-N2", "true", user=BOB).returncode == 0
        first.communicate("")
        assert first.returncode == 0


def test_tasks_can_be_bound_to_cpus(cluster: Cluster) -> None:
    show = ["grep", "Cpus_allowed_list", "/proc/self/status"]
    assert cluster.srun("--cpu-bind=map_cpu:0", *show).stdout.split() == ["Cpus_allowed_list:", "0"]


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("count", ["0", "1251"])
def test_a_wrong_number_of_nodes_is_refused(count: str) -> None:
    before = _daemons()
    done = sandbox("up", "-n", count)
    assert done.returncode == 2
    assert f"{count} is not from 1 to 1250" in done.stderr
    assert _daemons() == before


def test_down_leaves_no_process_even_when_the_controller_was_killed(cluster: Cluster) -> None:
    """A task's child that has left its session stays natively; the sandbox ends it, too."""
    uids = [pwd.getpwnam(user).pw_uid for user in (ALICE, BOB)]
    task = "setsid -f sleep 1000; echo up; exec sleep 1000"
    with cluster.popen(["srun", "-N2", "sh", "-c", task]) as job:
        assert job.line() == "up\n"
        os.kill(_daemons()["slurmctld"], 9)
        try:
            assert sandbox("down").returncode == 0
            assert living(*uids) == []
            assert sandbox("status").returncode == 3
            stopped = sandbox("run", "srun", "true")
            assert stopped.stderr.splitlines()[-2:] == [
                f"sandbox: error: {cluster.dir}: the cluster is stopped",
                "sandbox: hint: sandbox/up",
            ]
            assert list((cluster.dir / "spool").iterdir()) == []
        finally:
            assert sandbox("up", "-n", str(cluster.nodes)).returncode == 0
    assert cluster.srun("-N2", "true").returncode == 0


@pytest.mark.parametrize("by", ["user", "configuration"])
def test_a_sandbox_in_another_pid_namespace_is_not_this_one(cluster: Cluster, by: str) -> None:
    """It may have a root directory of its own, and in it a directory and users of equal names."""
    layout = Layout(cluster.dir)
    command = {
        "user": ["setpriv", "--reuid", ALICE, "--clear-groups", "sleep", "1001"],
        "configuration": ["env", f"SLURM_CONF={layout.slurm_conf}", "sleep", "1001"],
    }[by]
    apart = ["unshare", "--pid", "--fork", *command]
    with subprocess.Popen(command) as own, subprocess.Popen(apart):
        try:
            both = until("both to run", lambda: _if_two(_pids_of("sleep 1001")))
            assert belonging_to(layout) & both == {own.pid}
        finally:
            for pid in _pids_of("sleep 1001"):
                os.kill(pid, signal.SIGKILL)


def test_a_container_that_has_lost_its_launcher_belongs_to_the_sandbox(cluster: Cluster) -> None:
    launcher = ["unshare", "--user", "--pid", "--fork", "sleep", "1002"]
    with cluster.popen(launcher) as job:
        (pid,) = until("the container", lambda: _pids_of("sleep 1002"))
        job.kill()
    try:
        assert pid in belonging_to(Layout(cluster.dir))
    finally:
        os.kill(pid, signal.SIGKILL)


def _pids_of(command: str) -> set[int]:
    done = subprocess.run(["pgrep", "-xf", command], capture_output=True, text=True)
    return set(map(int, done.stdout.split()))


def _if_two(pids: set[int]) -> set[int]:
    return pids if len(pids) == 2 else set()


def test_another_number_of_nodes_reconfigures_the_cluster(cluster: Cluster) -> None:
    try:
        assert sandbox("up", "-n", "3").returncode == 0
        done = cluster.srun("-N3", "printenv", "SLURMD_NODENAME")
        assert sorted(done.stdout.split()) == ["n1", "n2", "n3"]
    finally:
        assert sandbox("up", "-n", str(cluster.nodes)).returncode == 0
    assert "slurmd-n3" not in _daemons()
    assert cluster.srun("-N2", "true").returncode == 0


def _unlike_all_others() -> Layout:
    """Return the layout of a new directory whose number no other sandbox of this machine has."""
    known = {entry.pw_name for entry in pwd.getpwall()}
    while known & {*(other := Layout(Path(tempfile.mkdtemp(dir="/var/tmp")))).users}:
        other.dir.rmdir()
    other.dir.chmod(0o755)
    return other


def test_a_second_sandbox_runs_and_ends_beside_the_first(cluster: Cluster, demo: str) -> None:
    other = _unlike_all_others()
    place = other.dir
    shutil.copytree(cluster.prefix, other.prefix, symlinks=True)
    cluster.image("demo")
    shutil.copytree(cluster.dir / "images", other.images)

    def command(*argv: str) -> str:
        done = subprocess.run(
            [str(ROOT / "sandbox" / argv[0]), *argv[1:]],
            env={**os.environ, "CE_SANDBOX_DIR": str(place)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    step = ["srun", "-N2", f"--environment={demo}", "sh", "-c", "echo up; cat"]
    with cluster.popen(step) as first:
        assert [first.line() for _ in range(2)] == ["up\n"] * 2
        try:
            assert f"run as {other.users[0]}\n" in command("up", "-n", "1")
            inside = (
                "srun",
                "--environment=demo",
                "sh",
                "-c",
                ". /etc/os-release; id -un; echo $ID",
            )
            for name, own in zip(USERS, other.users, strict=True):
                assert command("run", "-u", name, *inside) == f"{own}\nce-demo\n"
            answers = [answers_of(user) for user in other.users]
            for path in answers:
                path.mkdir(exist_ok=True)
        finally:
            command("down", "--purge")
        assert not place.exists()
        assert not any(path.exists() for path in answers)
        assert cluster.srun("-N2", "true").returncode == 0
        first.communicate("")
        assert first.returncode == 0
    for user in other.users:
        with pytest.raises(KeyError):
            pwd.getpwnam(user)
