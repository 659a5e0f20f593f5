"""View of a task in a container: the image's files, and otherwise that of a native task."""

import os
import pwd
import re
import shlex
from pathlib import Path

import pytest

from tests.slurm import procfs
from tests.slurm.cluster import ALICE, BOB, Cluster, causes
from tests.slurm.job import started
from tests.slurm.polling import until
from tests.slurm.slurm_configurations import configured

pytestmark = pytest.mark.usefixtures("tidy")


def _show(cluster: Cluster, edf: str | None, script: str, *options: str, **env: str) -> list[str]:
    """Return the sorted lines that the tasks of a step print; without an EDF it is native."""
    container = [f"--environment={edf}"] if edf else []
    done = cluster.srun(*options, *container, "sh", "-c", script, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return sorted(done.stdout.splitlines())


def test_every_task_sees_the_image(cluster: Cluster, demo: str) -> None:
    lines = _show(cluster, demo, ". /etc/os-release; echo $ID $SLURM_PROCID", "-N2", "-n8")
    assert lines == [f"ce-demo {rank}" for rank in range(8)]


def test_a_task_has_the_users_ids_and_names(cluster: Cluster, demo: str) -> None:
    script = "id -u; id -g; id -un; id -gn; whoami"
    assert _show(cluster, demo, script, "-N2") == _show(cluster, None, script, "-N2")


def test_a_task_has_all_groups_of_the_user(cluster: Cluster, demo: str) -> None:
    """In the user namespace the groups appear as nogroup, so the test reads them from outside."""
    with started(
        cluster, "srun", f"--environment={demo}", "sh", "-c", "echo $$; exec sleep 100"
    ) as job:
        pid = int(job.wait_for_lines(1)[0])
        status = Path(f"/proc/{pid}/status").read_text()
        groups = next(line for line in status.splitlines() if line.startswith("Groups:"))
    entry = pwd.getpwnam(ALICE)
    assert set(map(int, groups.split()[1:])) == set(os.getgrouplist(ALICE, entry.pw_gid))


def test_a_group_of_the_user_gives_access_to_its_files(
    cluster: Cluster, shared: Path, mounted: str
) -> None:
    file = shared / "of-the-project"
    file.write_text("readable\n")
    os.chown(file, 0, _project())
    file.chmod(0o640)
    done = cluster.srun(f"--environment={mounted}", "cat", str(file))
    assert (done.returncode, done.stdout) == (0, "readable\n")
    assert cluster.srun(f"--environment={mounted}", "cat", str(file), user=BOB).returncode == 1


def _project() -> int:
    entry = pwd.getpwnam(ALICE)
    return next(g for g in os.getgrouplist(ALICE, entry.pw_gid) if g != entry.pw_gid)


def test_there_is_one_container_per_node_and_step(
    cluster: Cluster, shared: Path, mounted: str
) -> None:
    # All at once, as the kernel reuses the number of a namespace that has ended.
    all_here = f"set -- {shared}/task-*; [ $# -eq 8 ]"
    script = (
        f": > {shared}/task-$SLURM_PROCID; until {all_here}; do sleep 0.1; done;"
        " echo $SLURMD_NODENAME $(readlink /proc/self/ns/mnt /proc/self/ns/user);"
    )
    lines = _show(cluster, mounted, script, "-N2", "-n8")
    assert len(lines) == 8
    nodes = {line.split()[0]: line.split()[1:] for line in lines}
    assert len(nodes) == len(set(lines)) == 2
    first, second = nodes.values()
    here = [os.readlink("/proc/self/ns/mnt"), os.readlink("/proc/self/ns/user")]
    for a, b, host in zip(first, second, here, strict=True):
        assert len({a, b, host}) == 3, (a, b, host)


def test_two_steps_of_a_job_have_containers_of_their_own(
    cluster: Cluster, shared: Path, mounted: str
) -> None:
    script = (
        f"echo > /usr/$1; touch {shared}/$1; until [ -e {shared}/$2 ]; do sleep 0.1; done;"
        " echo $1 sees $(cd /usr && ls -d one two 2> /dev/null)"
    )
    step = shlex.join(["srun", "--overlap", f"--environment={mounted}", "sh", "-c", script, "sh"])
    both = f"{step} one two & {step} two one & wait"
    done = cluster.run(["salloc", "-Q", "-N1", "sh", "-c", both])
    assert sorted(done.stdout.splitlines()) == ["one sees one", "two sees two"], done.stderr


def test_network_proc_and_host_name_are_the_hosts(cluster: Cluster, demo: str) -> None:
    names = ("net", "pid", "ipc", "uts")
    links = " ".join(f"/proc/self/ns/{name}" for name in names)
    script = f"readlink {links}; hostname; cat /proc/1/comm"
    assert _show(cluster, demo, script) == _show(cluster, None, script)
    assert _show(cluster, demo, f"readlink {links}") == sorted(
        os.readlink(f"/proc/self/ns/{name}") for name in names
    )


def test_a_task_knows_its_own_number_in_the_hosts_proc(cluster: Cluster, demo: str) -> None:
    with started(
        cluster, "srun", f"--environment={demo}", "sh", "-c", "echo $$; exec sleep 123"
    ) as job:
        number = int(job.wait_for_lines(1)[0])

        def is_the_task() -> bool:
            process = procfs.process(number)
            return process is not None and process.command == "sleep 123"

        assert until("the task's own command", is_the_task)


def test_the_host_names_and_the_resolver_are_the_hosts(cluster: Cluster, demo: str) -> None:
    script = "cat /etc/hosts /etc/resolv.conf"
    assert _show(cluster, demo, script) == _show(cluster, None, script)
    names = _show(cluster, demo, "cat /etc/hostname; uname -n")
    assert len(set(names)) == 1


@pytest.mark.parametrize("name", ["hosts", "resolv.conf", "hostname"])
def test_a_user_may_mount_other_files_of_names(cluster: Cluster, name: str) -> None:
    mine = cluster.write("192.0.2.7 mine\n")
    edf = cluster.edf(f'mounts = ["{mine}:/etc/{name}"]\n')
    assert _show(cluster, edf, f"cat /etc/{name}") == ["192.0.2.7 mine"]


def test_slurms_variables_are_the_same_as_natively(cluster: Cluster, demo: str) -> None:
    # SLUID identifies a job, too (Slurm 26.05)
    differing = "SLURM_.*(TIME|JOBID|JOB_ID|SLUID|PORT|PID)"
    script = f"env | grep ^SLURM | grep -vE '^({differing})'"
    options = ("-N2", "-n4")
    assert _show(cluster, demo, script, *options) == _show(cluster, None, script, *options)


def test_of_its_own_the_engine_adds_what_identifies_environment_and_image(
    cluster: Cluster, demo: str
) -> None:
    def names(edf: str | None) -> set[str]:
        return {line.partition("=")[0] for line in _show(cluster, edf, "env")}

    # By these variables Slurm tells the steps inside a step which option was given.
    options = {name for name in names(demo) if "SLURM_SPANK_" in name}
    added = names(demo) - names(None) - options
    # Slurm 26.05 sets I_MPI_HYDRA_BOOTSTRAP itself
    mpirun = {"HYDRA_LAUNCHER", "I_MPI_HYDRA_BOOTSTRAP"} - names(None)
    assert added - {"CE_IMAGE_DIGEST"} == {"CE_ENVIRONMENT_NAME", "CE_IMAGE", *mpirun}
    assert _show(cluster, demo, "echo $CE_ENVIRONMENT_NAME") == [demo]


def test_home_is_the_users(cluster: Cluster, demo: str) -> None:
    assert _show(cluster, demo, "echo $HOME; ls -d ~") == [str(cluster.home())] * 2


def test_home_on_the_host_is_not_in_the_container_unless_mounted(
    cluster: Cluster, demo: str
) -> None:
    cluster.srun("touch", str(cluster.home() / "only-outside"))
    assert _show(cluster, demo, "cd && ls -A") == []
    home = cluster.home()
    edf = cluster.edf(f'mounts = ["{home}:{home}"]\n')
    assert "only-outside" in _show(cluster, edf, "cd && ls -A")


def test_a_variable_of_the_caller_reaches_the_tasks(cluster: Cluster, demo: str) -> None:
    value = "a b\n'\"\\$HOME ü\t="
    script = 'printf %s "$CALLERS" | od -An -c'
    native = _show(cluster, None, script, CALLERS=value)
    assert _show(cluster, demo, script, CALLERS=value) == native


def test_the_edf_wins_over_the_callers_environment_and_can_unset(cluster: Cluster) -> None:
    edf = cluster.edf('[env]\nMINE = "edf"\nGONE = ""\nBOTH = "${CALLERS}+edf"\n')
    env = {"MINE": "caller", "GONE": "caller", "CALLERS": "caller"}
    lines = _show(cluster, edf, "env | grep -E '^(MINE|GONE|BOTH)='", **env)
    assert lines == ["BOTH=caller+edf", "MINE=edf"]


@pytest.mark.parametrize("export", ["NONE", "MINE=srun"])
def test_what_srun_does_not_export_does_not_arrive(
    cluster: Cluster, demo: str, export: str
) -> None:
    script = 'echo "$MINE" "$OTHER" "$SLURM_PROCID" $(. /etc/os-release; echo $ID)'
    env = {"OTHER": "caller", "MINE": "caller"}
    done = cluster.srun(f"--export={export}", f"--environment={demo}", "sh", "-c", script, env=env)
    assert done.stdout == f"{export.partition('=')[2]}  0 ce-demo\n", done.stderr


def test_path_is_the_images(cluster: Cluster, demo: str) -> None:
    here = f"{cluster.prefix}/bin"
    assert here in _show(cluster, None, "echo $PATH")[0]
    assert here not in _show(cluster, demo, "echo $PATH")[0]


def test_without_a_path_commands_are_found_as_usual(cluster: Cluster) -> None:
    edf = cluster.edf('[env]\nPATH = ""\n')
    done = cluster.srun(f"--environment={edf}", "sh", "-c", "echo $PATH")
    usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, usual, "")


@pytest.mark.parametrize("how", ["--task-prolog", "SLURM_TASK_PROLOG"])
def test_a_task_prolog_runs_on_the_host_and_its_exports_reach_the_task(
    cluster: Cluster, how: str
) -> None:
    edf = cluster.edf('[env]\nBOTH = "edf"\n')
    prolog = cluster.write(
        "#!/bin/sh\n. /etc/os-release\necho export WHERE=$ID\necho export BOTH=prolog\n", mode=0o755
    )
    script = '. /etc/os-release; echo "$WHERE $BOTH $ID"; env | grep -c ^CE_JOIN'
    options = [f"--task-prolog={prolog}"] if how.startswith("--") else []
    env = {} if options else {how: str(prolog)}
    done = cluster.srun(*options, "-n2", f"--environment={edf}", "sh", "-c", script, env=env)
    host = cluster.srun("sh", "-c", ". /etc/os-release; echo $ID").stdout.strip()
    assert sorted(done.stdout.splitlines()) == ["0", "0", *[f"{host} edf ce-demo"] * 2], done.stderr


def test_behind_a_task_prolog_a_missing_command_is_named_once(cluster: Cluster, demo: str) -> None:
    prolog = cluster.write("#!/bin/sh\n", mode=0o755)
    srun = (f"--task-prolog={prolog}", "-N2", "-n4", f"--environment={demo}", "no-such")
    done = cluster.srun(*srun)
    assert done.returncode == 127
    (cause,) = causes(done)
    assert re.fullmatch(r"ce: error: n\d: no-such: command not found in the container", cause)


def test_a_site_with_a_task_prolog_has_it_run_on_the_host(cluster: Cluster, demo: str) -> None:
    prolog = cluster.write("#!/bin/sh\n. /etc/os-release\necho export WHERE=$ID\n", mode=0o755)
    script = '. /etc/os-release; echo "$WHERE $ID"'
    host = cluster.srun("sh", "-c", ". /etc/os-release; echo $ID").stdout.strip()
    with configured(cluster, "n1", f"TaskProlog={prolog}\n"):
        srun = ("-w", "n1", f"--environment={demo}")
        done = cluster.srun(*srun, "sh", "-c", script)
        programs = cluster.write(f"0-1 sh -c '{script}'\n")
        many = cluster.srun(*srun, "-n2", "--multi-prog", str(programs))
    assert (done.stdout, done.stderr) == (f"{host} ce-demo\n", "")
    assert (many.stdout, many.stderr) == (f"{host} ce-demo\n" * 2, "")


@pytest.mark.parametrize("mask", ["000", "027", "077"])
def test_umask_is_the_callers(cluster: Cluster, demo: str, mask: str) -> None:
    step = shlex.join(["srun", f"--environment={demo}", "sh", "-c", "umask"])
    done = cluster.run(["sh", "-c", f"umask {mask}; {step}"])
    assert (done.stdout, done.stderr) == (f"0{mask}\n", "")


def test_tasks_stay_on_the_cpus_they_are_bound_to(cluster: Cluster, demo: str) -> None:
    script = "grep Cpus_allowed_list /proc/self/status"
    options = ("-n2", "--cpu-bind=map_cpu:0,1")
    lines = _show(cluster, demo, script, *options)
    assert lines == _show(cluster, None, script, *options)
    assert len(set(lines)) == min(2, os.cpu_count() or 1)


def test_resource_limits_are_the_callers(cluster: Cluster, demo: str) -> None:
    step = ["srun", f"--environment={demo}", "sh", "-c", "ulimit -n; ulimit -c; ulimit -s"]
    limits = "ulimit -n 321; ulimit -c 0; ulimit -s 4096"
    done = cluster.run(["sh", "-c", f"{limits}; {shlex.join(step)}"])
    assert (done.stdout.split(), done.stderr) == (["321", "0", "4096"], "")


def test_a_task_has_the_descriptors_of_a_native_one(cluster: Cluster, demo: str) -> None:
    script = "ls /proc/$$/fd"
    assert _show(cluster, demo, script) == _show(cluster, None, script)


def test_signals_are_neither_blocked_nor_ignored_other_than_natively(
    cluster: Cluster, demo: str
) -> None:
    script = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status"
    assert _show(cluster, demo, script) == _show(cluster, None, script)


def test_tasks_have_no_capabilities(cluster: Cluster, demo: str) -> None:
    script = "grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status"
    assert {line.split()[1] for line in _show(cluster, demo, script)} == {"0" * 16}


_PMI2 = """
import os
def frame(text):
    return b"%06d" % len(text) + text
with os.fdopen(int(os.environ["PMI_FD"]), "r+b", buffering=0) as pmi:
    pmi.write(b"cmd=init pmi_version=2 pmi_subversion=0\\n")
    init = pmi.readline()
    def ask(text):
        pmi.write(frame(text))
        return pmi.read(int(pmi.read(6))).decode()
    rank = os.environ["PMI_RANK"]
    full = ask(b"cmd=fullinit;pmirank=%s;threaded=FALSE;" % rank.encode())
    ask(b"cmd=kvs-put;key=from%s;value=%s;" % (rank.encode(), rank.encode()))
    ask(b"cmd=kvs-fence;")
    other = ask(b"cmd=kvs-get;jobid=;srcid=-1;key=from%d;" % (1 - int(rank)))
    values = dict(item.split("=", 1) for item in (full + other).split(";") if "=" in item)
    ask(b"cmd=finalize;")
print(init.split()[0].decode(), rank, values["size"], values["value"])
"""


def test_pmi2_works_between_the_tasks_of_two_nodes(cluster: Cluster, demo: str) -> None:
    step = ["--mpi=pmi2", "-N2", "-n2", f"--environment={demo}", "python3", "-c", _PMI2]
    done = cluster.srun(*step)
    assert sorted(done.stdout.splitlines()) == [
        "cmd=response_to_init 0 2 1",
        "cmd=response_to_init 1 2 0",
    ], done.stderr


_SHARED_MEMORY = """
import mmap, os, time
name = "/dev/shm/ce-test-%s" % os.environ["SLURM_JOB_ID"]
rank = int(os.environ["SLURM_PROCID"])
if rank == 0:
    with open(name + ".new", "wb") as file:
        file.truncate(4096)
    os.rename(name + ".new", name)
deadline = time.monotonic() + 20
while not os.path.exists(name):
    assert time.monotonic() < deadline
with open(name, "r+b") as file:
    memory = mmap.mmap(file.fileno(), 4096)
memory[1 + rank] = 1
while memory[1] + memory[2] < 2:
    assert time.monotonic() < deadline
print("met", os.path.exists(name))
if rank == 0:
    while not memory[3]:
        assert time.monotonic() < deadline
    os.unlink(name)
memory[3] = rank
"""


def test_tasks_of_a_node_share_memory(cluster: Cluster, demo: str) -> None:
    done = cluster.srun("-N1", "-n2", f"--environment={demo}", "python3", "-c", _SHARED_MEMORY)
    assert (done.returncode, done.stdout) == (0, "met True\nmet True\n"), done.stderr


def test_tasks_of_a_node_can_send_signals_to_each_other(cluster: Cluster, demo: str) -> None:
    script = (
        'if [ "$SLURM_PROCID" = 0 ]; then trap "echo caught; exit 0" USR1; echo $$ > /tmp/pid.new;'
        " mv /tmp/pid.new /tmp/pid; while :; do sleep 0.1; done;"
        " else until [ -e /tmp/pid ]; do sleep 0.1; done; kill -USR1 $(cat /tmp/pid); fi"
    )
    assert _show(cluster, demo, script, "-N1", "-n2") == ["caught"]


def test_what_a_task_writes_the_other_tasks_of_the_node_see(cluster: Cluster, demo: str) -> None:
    script = (
        'if [ "$SLURM_PROCID" = 0 ]; then echo written > /usr/new; mv /usr/new /usr/mark; fi;'
        " until [ -e /usr/mark ]; do sleep 0.1; done; cat /usr/mark"
    )
    assert _show(cluster, demo, script, "-N1", "-n2") == ["written"] * 2


def test_an_interactive_bash_reads_the_users_file_where_the_home_is_mounted(
    cluster: Cluster, demo: str
) -> None:
    """`docs/howto/interactive.md` says so, and how to skip it."""
    home = cluster.home()
    (home / ".bashrc").write_text("echo own file\n")
    edf = home / "own.toml"
    edf.write_text(f'base_environment = "{demo}"\nmounts = ["{home}"]\n')
    told = {
        (name, words): cluster.srun(f"--environment={name}", *words, "-ic", "exit").stdout
        for name in (str(edf), demo)
        for words in (("bash",), ("bash", "--rcfile", "/dev/null"))
    }
    for file in (edf, home / ".bashrc"):
        file.unlink()
    read = [key for key, out in told.items() if "own file" in out]
    assert read == [(str(edf), ("bash",))]
