"""Two users on one node: neither can access the other's container."""

import pwd
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from mmap import PAGESIZE
from pathlib import Path

import pytest

from tests.slurm import procfs
from tests.slurm.cluster import ALICE, BOB, Cluster, Completed
from tests.slurm.error_block import differing
from tests.slurm.job import Job, started
from tests.slurm.leftovers import helpers, is_helper
from tests.slurm.procfs import Process
from tests.slurm.slurm_configurations import line_of, plugins_on

pytestmark = pytest.mark.usefixtures("tidy")

_SECRET = "xyzzy-4711"


@pytest.fixture
def victim(cluster: Cluster, tidy: None) -> Iterator[tuple[Job, list[Process]]]:
    """Yield Alice's step and all its processes; a step of Bob's runs on the same node."""
    del tidy  # comes first, so that it checks after everything has ended
    edf = cluster.edf(f'[env]\nSECRET = "{_SECRET}"\n')
    script = "echo up; read line; echo $line"
    with (
        started(cluster, "srun", "-w", "n1", f"--environment={edf}", "sh", "-c", script) as job,
        started(
            cluster, "srun", "-w", "n1", f"--environment={edf}", "sh", "-c", script, user=BOB
        ) as other,
    ):
        job.wait_for_lines(1)
        other.wait_for_lines(1)
        uid = pwd.getpwnam(ALICE).pw_uid
        yield (
            job,
            [p for p in procfs.living(uid) if is_helper(p) or "container-engine" in p.mounts()],
        )


def _attack(cluster: Cluster, script: str, *args: str) -> Completed:
    """Run a Python script as Bob, which prints every success."""
    return cluster.run(["python3", "-c", script, *args], user=BOB)


_ATTACKS = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(what, act):
    try:
        result = act()
    except OSError:
        return
    print(what, result)
def call(number, *args):
    result = libc.syscall(number, *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result
for pid in map(int, sys.argv[1:]):
    for name in ("environ", "maps", "auxv", "stack", "io"):
        attempt(f"{pid} {name}", lambda: open(f"/proc/{pid}/{name}").read(1))
    for name in ("root", "cwd", "fd", "map_files"):
        attempt(f"{pid} {name}", lambda: os.listdir(f"/proc/{pid}/{name}/"))
    attempt(f"{pid} exe", lambda: os.readlink(f"/proc/{pid}/exe"))
    for name in ("user", "mnt", "pid", "net"):
        attempt(f"{pid} ns/{name}", lambda: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY))
    attempt(f"{pid} mem", lambda: os.open(f"/proc/{pid}/mem", os.O_RDONLY))
    attempt(f"{pid} kill", lambda: os.kill(pid, signal.SIGKILL))
    attempt(f"{pid} ptrace", lambda: call(101, 16, pid, 0, 0))
    attempt(f"{pid} pidfd_getfd", lambda: call(438, os.pidfd_open(pid), 0, 0))
    attempt(f"{pid} setns", lambda: call(308, os.pidfd_open(pid), 0x10000000))
    attempt(f"{pid} setpriority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt(f"{pid} affinity", lambda: os.sched_setaffinity(pid, {0}))
print("tried", len(sys.argv) - 1)
"""


def test_another_user_can_neither_join_read_nor_stop_any_process_of_a_container(
    cluster: Cluster, victim: tuple[Job, list[Process]]
) -> None:
    job, processes = victim
    names = {process.comm for process in processes}
    assert {"ce-guard", "ce-image", ".ce-init", "sh"} <= names
    done = _attack(cluster, _ATTACKS, *(str(process.pid) for process in processes))
    assert (done.stdout, done.stderr) == (f"tried {len(processes)}\n", "")
    job.write("unharmed\n")
    assert job.wait().stdout == "up\nunharmed\n"


def _written(process: Process) -> bytes:
    """Return the memory that a process may write, its heap and its stack among it."""
    rows = (procfs.PROC / str(process.pid) / "maps").read_text().splitlines()
    found = []
    with (procfs.PROC / str(process.pid) / "mem").open("rb", buffering=0) as memory:
        for row in rows:
            begin, end = (int(word, 16) for word in row.split()[0].split("-"))
            if row.split()[1].startswith("rw"):
                for place in range(begin, end, PAGESIZE):
                    memory.seek(place)
                    # a newer glibc has pages below a stack that nobody can read
                    with suppress(OSError):
                        found.append(memory.read(PAGESIZE))
    return b"".join(found)


@pytest.mark.parametrize("more", ["", "x" * 120_000], ids=["few variables", "many bytes"])
def test_the_guard_forgets_the_variables_of_the_step_that_ce_guard_has_read(
    cluster: Cluster, more: str
) -> None:
    """Twice: the second start is repeated without Python."""
    edf = cluster.edf("")
    step = ["srun", "-w", "n1", f"--environment={edf}", "sh", "-c", "echo $MARK; exec sleep 1000"]
    for mark in ("first-4711", "second-4711"):
        variables = ["env", f"MARK={mark}", f"MORE={more}", f"LAST={mark}"]
        with started(cluster, *variables, *step) as job:
            assert job.wait_for_lines(1) == [mark]
            [guard] = [p for p in helpers() if p.comm == "ce-guard" and p.is_first]
            memory = _written(guard)
            job.process.terminate()
        assert b"libexec/container-engine/ce-guard" in memory
        assert mark.encode() not in memory


def test_another_users_container_does_not_help_to_attack(
    cluster: Cluster, victim: tuple[Job, list[Process]]
) -> None:
    """Root of a user namespace has capabilities, but none of them is valid outside of it."""
    job, processes = victim
    edf = cluster.edf()
    pids = [str(process.pid) for process in processes]
    done = cluster.srun(
        "-w", "n1", f"--environment={edf}", "python3", "-c", _ATTACKS, *pids, user=BOB
    )
    assert (done.stdout, done.stderr) == (f"tried {len(processes)}\n", "")
    job.write("unharmed\n")
    assert job.wait().stdout == "up\nunharmed\n"


@pytest.mark.usefixtures("victim")
def test_no_command_line_shows_what_is_in_a_containers_environment(cluster: Cluster) -> None:
    # The pattern is written so that it does not match itself.
    script = f"cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c '{_SECRET[:-1]}[{_SECRET[-1]}]'"
    assert cluster.run(["sh", "-c", script], user=BOB).stdout == "0\n"


@pytest.mark.usefixtures("victim")
def test_slurm_shows_nobody_what_is_in_a_plan(cluster: Cluster) -> None:
    script = "scontrol -d show job; scontrol -d show step"
    done = cluster.run(["sh", "-c", script], user=BOB)
    assert "JobId=" in done.stdout
    assert _SECRET not in done.stdout
    assert "PLAN" not in done.stdout


@pytest.mark.usefixtures("victim")
def test_the_image_of_another_users_container_is_mounted_nowhere_one_can_see(
    cluster: Cluster,
) -> None:
    session = cluster.prefix / "libexec" / "container-engine" / "session"
    script = f"ls -A {session}; grep -c -e ce-image -e {session} /proc/self/mountinfo"
    assert cluster.run(["sh", "-c", script], user=BOB).stdout == "0\n"


def test_the_cached_plan_of_a_user_is_the_users_alone(cluster: Cluster, demo: str) -> None:
    assert cluster.srun(f"--environment={demo}", "true").returncode == 0
    answers = list((cluster.home() / ".cache/container-engine/plans").rglob("*"))
    files = [path for path in answers if path.is_file()]
    assert files
    assert {oct(path.stat().st_mode & 0o077) for path in files} == {"0o0"}


def test_helpers_hold_nothing_of_slurmstepds(cluster: Cluster, demo: str) -> None:
    """A helper with a pipe or a socket of the step would keep srun waiting, or leak it."""
    with started(cluster, "srun", f"--environment={demo}", "sh", "-c", "echo up; read line") as job:
        job.wait_for_lines(1)
        found = helpers()
        assert len(found) >= 3
        for process in found:
            files = process.open_files()
            spool = [name for name in files if str(cluster.dir / "spool") in name]
            assert spool == [], process
            assert not [name for name in files if "slurm" in name], process


def test_helpers_run_as_the_user_without_any_root_id(cluster: Cluster, demo: str) -> None:
    with started(cluster, "srun", f"--environment={demo}", "sh", "-c", "echo up; read line") as job:
        job.wait_for_lines(1)
        everything = [p for p in procfs.processes() if is_helper(p) and p.lives]
        uid = pwd.getpwnam(ALICE).pw_uid
        # The launcher may end in the meantime.
        statuses = [process.status() for process in everything]
        found = [set(status["Uid"].split()) for status in statuses if status]
        assert len(found) >= 3
        assert found == [{str(uid)}] * len(found), everything


def test_a_user_cannot_choose_what_the_nodes_run(cluster: Cluster, shared: Path) -> None:
    """PATH, Python's variables and Podman's have no effect on what starts a container."""
    marker = shared / "ran"
    tools = cluster.scratch / "evil"
    tools.mkdir(exist_ok=True)
    for name in ("podman", "crun", "conmon", "ce-image", "python3", "ce", "json.py", "os.py"):
        file = tools / name
        file.write_text(f"#!/bin/sh\ntouch {marker}\n")
        file.chmod(0o755)
    env = {
        "PATH": f"{tools}:/usr/bin:/bin",
        "PYTHONPATH": str(tools),
        "PYTHONHOME": str(tools),
        "CONTAINERS_CONF": f"{tools}/containers.conf",
        "LD_PRELOAD": f"{tools}/podman",
        "LD_LIBRARY_PATH": str(tools),
    }
    (tools / "containers.conf").write_text(f'[engine]\nconmon_path = ["{tools}/conmon"]\n')
    edf = cluster.edf()
    done = cluster.srun(f"--environment={edf}", "cat", "/etc/os-release", env=env)
    assert "ID=ce-demo" in done.stdout, done.stderr
    assert not marker.exists()


_MODULES = (
    "json",
    "os",
    "sitecustomize",
    "usercustomize",
    "tomllib",
    "pydantic",
    "container_engine",
)
# A library that reports when Python loads it. srun, which the user starts, may load it.
_PRELOADED = r"""
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void)
{
	char path[4096] = "";
	if (readlink("/proc/self/exe", path, sizeof path - 1) > 0 && strstr(path, "python"))
		close(open(MARKER, O_CREAT | O_WRONLY, 0666));
}
"""


@pytest.fixture
def hostile(shared: Path) -> tuple[Path, dict[str, str], Path]:
    """Prepare modules and libraries that a careless Python would load.

    Return their directory, an environment that points to it, and the file that one of them creates
    when it is loaded.
    """
    marker, place = shared / "loaded", shared / "hostile"
    place.mkdir(mode=0o755)
    for module in _MODULES:
        (place / f"{module}.py").write_text(f"open({str(marker)!r}, 'w')\nraise SystemExit(99)\n")
    (place / "libexpat.so.1").write_text("not a library\n")
    source = place / "preloaded.c"
    source.write_text(_PRELOADED)
    library = place / "preloaded.so"
    compile_ = ["gcc", "-shared", "-fPIC", f'-DMARKER="{marker}"', "-o", str(library), str(source)]
    subprocess.run(compile_, check=True)
    variables = {
        **{name: str(place) for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE")},
        "PYTHONSTARTUP": str(place / "json.py"),
        "PYTHONINSPECT": "1",
        "PYTHONVERBOSE": "1",
        "PYTHONEXECUTABLE": f"{place}/bin/python3",
        "LD_LIBRARY_PATH": str(place),
        "LD_PRELOAD": str(library),
        "PATH": f"{place}:/usr/bin:/bin",
    }
    return place, variables, marker


def test_the_hostile_environment_works(
    cluster: Cluster, hostile: tuple[Path, dict[str, str], Path]
) -> None:
    """Otherwise the tests below would prove nothing: without isolation Python does not start."""
    place, variables, marker = hostile
    python = ["/usr/bin/python3", "-I", "-c", "pass"]
    assert "libexpat.so.1" in cluster.run(python, env=variables, cwd=place).stderr
    del variables["LD_LIBRARY_PATH"]
    assert cluster.run(python, env=variables, cwd=place).returncode == 0
    assert marker.exists()


@pytest.mark.parametrize("way", ["srun", "ce run", "ce plan", "ce validate"])
def test_nothing_of_the_users_environment_gets_into_the_engines_python(
    cluster: Cluster, hostile: tuple[Path, dict[str, str], Path], way: str
) -> None:
    place, variables, marker = hostile
    # a new file, so that no plan is cached
    edf = cluster.edf('[env]\nSEEN = "${LD_LIBRARY_PATH} ${PYTHONEXECUTABLE}"\n')
    ce = str(cluster.prefix / "bin/ce")
    done = cluster.run(
        {
            "srun": ["srun", f"--environment={edf}", "printenv", "SEEN"],
            "ce run": [ce, "run", edf, "--", "printenv", "SEEN"],
            "ce plan": [ce, "plan", edf],
            "ce validate": [ce, "validate", edf],
        }[way],
        env=variables,
        cwd=place,
    )
    assert done.returncode == 0, done.stderr
    assert not marker.exists()
    if "printenv" in done.args:
        assert done.stdout == f"{place} {place}/bin/python3\n"
    # To the EDF they are ordinary variables, whose values are shown.
    assert way == "ce validate" or str(place) in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_a_tasks_process_group_does_not_reach_the_helpers(
    cluster: Cluster, demo: str, number: signal.Signals
) -> None:
    script = f"trap '' {number.name[3:]}; kill -{number.name[3:]} 0; cat /etc/os-release"
    done = cluster.srun(f"--environment={demo}", "sh", "-c", script)
    assert "ID=ce-demo" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "way", ["task", "behind a prolog", "of many programs", "ce run", "outside"]
)
def test_no_execve_gives_a_task_privileges(
    cluster: Cluster, demo: str, shared: Path, way: str
) -> None:
    prolog = shared / "prolog"
    prolog.write_text("#!/bin/sh\n")
    prolog.chmod(0o755)
    look = ("grep", "NoNewPrivs", "/proc/self/status")
    programs = str(cluster.write(f"0 {' '.join(look)}\n"))
    done = cluster.run(
        {
            "task": ["srun", f"--environment={demo}", *look],
            "behind a prolog": [
                *("srun", f"--task-prolog={prolog}", f"--environment={demo}"),
                *look,
            ],
            "of many programs": ["srun", f"--environment={demo}", "--multi-prog", programs],
            "ce run": [str(cluster.prefix / "bin/ce"), "run", demo, "--", *look],
            "outside": ["srun", *look],
        }[way]
    )
    expected = "0" if way == "outside" else "1"
    assert (done.returncode, done.stdout.split()) == (0, ["NoNewPrivs:", expected]), done.stderr


# A filter that allows everything; /proc shows that it is installed.
_PROFILE = struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)


@pytest.mark.parametrize("way", ["srun", "ce run", "ce exec", "start-up line"])
def test_a_profile_beside_the_configuration_is_for_all_that_enters_a_container(
    cluster: Cluster, demo: str, way: str
) -> None:
    look = "grep -w Seccomp: /proc/self/status"
    ce = cluster.prefix / "bin/ce"
    line = cluster.write(
        f'base_environment = "{demo}"\nstartup = ["export SEEN=\\"$$({look})\\""]\n'
    )
    beside = f"srun --environment={demo} sleep 1000 & sleep 2; {ce} exec $SLURM_JOB_ID.0 -- {look}"
    argv = {
        "srun": ["srun", f"--environment={demo}", *look.split()],
        "ce run": [str(ce), "run", demo, "--", *look.split()],
        "ce exec": ["salloc", "-Q", "-N1", "sh", "-c", f"{beside}; kill $!; wait"],
        "start-up line": ["srun", f"--environment={line}", "sh", "-c", "echo $SEEN"],
    }[way]
    profile = cluster.prefix / "etc/container-engine/tasks.bpf"
    profile.parent.mkdir(parents=True, exist_ok=True)
    try:
        for mode, expected in ((0o644, ["Seccomp:", "2"]), (0o666, [])):
            profile.write_bytes(_PROFILE)
            profile.chmod(mode)
            done = cluster.run(argv)
            assert done.stdout.split() == expected, done.stderr
            refusal = f"profile {profile}: must be owned by root and writable by nobody else"
            assert (refusal in done.stderr) == (not expected)
    finally:
        profile.unlink()


@pytest.mark.parametrize("way", ["task", "behind a prolog", "of many programs", "outside"])
def test_tasks_have_the_sites_seccomp_profile(
    cluster: Cluster, demo: str, shared: Path, way: str
) -> None:
    profile = cluster.dir / "etc/tasks.bpf"
    profile.write_bytes(_PROFILE)
    profile.chmod(0o644)
    prolog = shared / "prolog"
    prolog.write_text("#!/bin/sh\n")
    prolog.chmod(0o755)
    look = ("grep", "-w", "Seccomp:", "/proc/self/status")
    programs = str(cluster.write(f"0 {' '.join(look)}\n"))
    step = ("-w", "n2", f"--environment={demo}")
    argv = {
        "task": ["srun", *step, *look],
        "behind a prolog": ["srun", f"--task-prolog={prolog}", *step, *look],
        "of many programs": ["srun", *step, "--multi-prog", programs],
        "outside": ["srun", "-w", "n2", *look],
    }[way]
    line = f"{line_of(cluster)} prefix={cluster.prefix} seccomp={profile}\n"
    with differing("n2"), plugins_on(cluster, "n2", shared, line):
        done = cluster.run(argv)
        profile.write_bytes(_PROFILE[:7])
        broken = cluster.run(argv)
    profile.unlink()
    expected = "0" if way == "outside" else "2"
    assert (done.returncode, done.stdout.split()) == (0, ["Seccomp:", expected]), done.stderr
    assert broken.returncode == (0 if way == "outside" else 125)
    assert ("seccomp profile is not a filter" in broken.stderr) == (way != "outside")
