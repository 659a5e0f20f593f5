"""Containers of tasks: com.ce.scope = "task"."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from tests.slurm.cluster import ALICE, Cluster, Completed, causes
from tests.slurm.job import started
from tests.slurm.leftovers import helpers
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")

# with crun, as Podman makes one container for a node
_SCOPE = '"com.ce.scope" = "task"\n"com.ce.start" = "crun"\n'
# tasks are in different containers if the numbers of their namespaces differ
_NAMESPACES = "readlink /proc/self/ns/mnt /proc/self/ns/user | tr '\\n' ' '"
# each task of a step waits for the others, by files in a directory of the host
_MEET = (
    "touch /meet/$SLURM_PROCID;"
    " until [ $(ls /meet | wc -l) -ge $SLURM_NTASKS ]; do sleep 0.05; done"
)


@pytest.fixture
def each(cluster: Cluster) -> str:
    return f"--environment={_edf(cluster)}"


def _edf(cluster: Cluster, annotations: str = "", text: str = "") -> str:
    return cluster.edf(f"writable = true\n{text}[annotations]\n{_SCOPE}{annotations}", image="demo")


def _meeting(cluster: Cluster, annotations: str = "") -> str:
    """Return the option for an environment with a new directory of the host at /meet."""
    place = cluster.scratch / f"meet-{os.urandom(4).hex()}"
    place.mkdir()
    place.chmod(0o777)
    mount = f'mounts = ["{place}:/meet"]\n'
    return f"--environment={_edf(cluster, annotations, mount)}"


def _run(cluster: Cluster, *argv: str, tasks: int = 4) -> Completed:
    done = cluster.srun("-wn1", f"-n{tasks}", "--overcommit", *argv)
    assert (done.returncode, done.stderr) == (0, "")
    return done


def _running() -> Counter[str]:
    return Counter(process.comm for process in helpers())


def test_no_task_sees_what_another_one_of_its_node_writes(cluster: Cluster) -> None:
    script = f"echo $SLURM_PROCID >/file; {_MEET}; echo $SLURM_PROCID $(cat /file) $({_NAMESPACES})"
    lines = _run(cluster, _meeting(cluster), "sh", "-c", script).stdout.splitlines()
    seen = sorted(line.split() for line in lines)
    assert [line[:2] for line in seen] == [[str(n), str(n)] for n in range(4)]
    assert len({line[2] for line in seen}) == len({line[3] for line in seen}) == 4


def test_shared_memory_is_the_nodes_unless_it_is_said_otherwise(cluster: Cluster) -> None:
    name = f"/dev/shm/ce-{os.urandom(4).hex()}"
    counted = {}
    for annotations in ("", '"com.ce.unshare" = "ipc"\n'):
        option = _meeting(cluster, annotations)
        mine = f"{name}.$SLURM_PROCID"
        script = f"touch {mine}; {_MEET}; ls {name}.* | wc -l; sleep 0.5; rm {mine}"
        counted[annotations] = _run(cluster, option, "sh", "-c", script).stdout.split()
    assert list(counted.values()) == [["4"] * 4, ["1"] * 4]


def test_a_task_with_own_processes_sees_no_other_task(cluster: Cluster) -> None:
    option = _meeting(cluster, '"com.ce.unshare" = "pid"\n')
    script = f"sleep 4711 & {_MEET}; cat /proc/[0-9]*/comm | grep -c sleep; kill $!"
    assert _run(cluster, option, "sh", "-c", script).stdout.split() == ["1"] * 4


def test_one_server_serves_all_containers_which_end_with_their_tasks(
    cluster: Cluster, each: str
) -> None:
    script = "echo up; read line; [ $SLURM_PROCID = 0 ] || exec sleep 300"
    argv = ("srun", "-wn1", "-n4", "--overcommit", "-K0", each, "sh", "-c", script)
    with started(cluster, *argv) as job:
        job.wait_for_lines(4)
        # the session's guard and one for each container
        assert _running() == {"ce-guard": 5, "ce-image": 1, ".ce-init": 4}
        job.write("go\n" * 4)
        until("a container to end", lambda: _running()[".ce-init"] == 3)
        until(
            "its guard to end", lambda: _running() == {"ce-guard": 4, "ce-image": 1, ".ce-init": 3}
        )
        assert job.process.poll() is None


def test_many_tasks_start_at_once(cluster: Cluster, each: str) -> None:
    script = f"touch /here && {_NAMESPACES} && echo"
    for _again in range(2):  # by Python and, perhaps, without it
        done = _run(cluster, each, "sh", "-c", script, tasks=24)
        assert len(set(done.stdout.splitlines())) == 24


def test_tasks_of_two_nodes_have_their_own(cluster: Cluster, each: str) -> None:
    done = cluster.srun("-N2", "-n4", each, "sh", "-c", f"touch /here && {_NAMESPACES}; echo")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 4


def test_a_task_behind_a_prolog_and_one_of_multi_prog_have_containers_of_their_own(
    cluster: Cluster, each: str
) -> None:
    prolog = cluster.write("#!/bin/sh\necho export A=b\n", mode=0o755)
    script = f"echo $A $({_NAMESPACES})"
    done = _run(cluster, f"--task-prolog={prolog}", each, "sh", "-c", script)
    lines = done.stdout.splitlines()
    assert len(set(lines)) == 4
    assert all(line.startswith("b mnt:") for line in lines)
    # which stay: the number of a namespace that has ended may be given to the next
    line = "sh -c 'readlink /proc/self/ns/mnt; sleep 2'"
    programs = cluster.write(f"0-1 {line}\n2-3 {line}\n")
    done = _run(cluster, "--multi-prog", each, str(programs))
    assert len(set(done.stdout.split())) == 4


def test_what_a_task_leaves_running_ends_with_its_step(cluster: Cluster, each: str) -> None:
    script = "(setsid sleep 4711 >/dev/null 2>&1 &); exit $SLURM_PROCID"
    done = cluster.srun("-wn1", "-n2", "-K0", each, "sh", "-c", script)
    assert done.returncode == 1
    until("the process to end", lambda: cluster.run(["pgrep", "-f", "sleep 4711"]).returncode == 1)


@pytest.mark.parametrize(
    ("victim", "which", "cause"),
    [
        # the oldest guard is the session's, the others are the tasks'
        ("ce-guard", min, "the process that guards the container was killed"),
        ("ce-guard", max, "the process that guards a task's container was killed by signal 9"),
        (".ce-init", min, "of a task's container: the container's init process ended"),
        ("ce-image", min, "(ce-image) was killed by signal 9"),
    ],
)
def test_a_part_that_is_killed_ends_all_containers_of_the_step(
    cluster: Cluster, each: str, victim: str, which: Callable[[Iterable[int]], int], cause: str
) -> None:
    argv = ("srun", "-wn1", "-n4", "--overcommit", each, "sh", "-c", "echo up; exec sleep 300")
    with started(cluster, *argv) as job:
        job.wait_for_lines(4)
        pid = which(process.pid for process in helpers() if process.comm == victim)
        os.kill(pid, signal.SIGKILL)
        done = job.wait()
    assert done.returncode != 0
    (line,) = causes(done)
    assert cause in line


@pytest.mark.parametrize("signals", [("KILL",), ("TERM", "KILL")])
def test_a_cancelled_step_leaves_nothing(
    cluster: Cluster, each: str, signals: tuple[str, ...]
) -> None:
    argv = ("srun", "-wn1", "-n8", "--overcommit", each, "sh", "-c", "echo up; exec sleep 300")
    with started(cluster, *argv) as job:
        job.wait_for_lines(8)
        for name in signals:
            cluster.run(["scancel", "-s", name, "-u", ALICE])
        done = job.wait()
    assert done.returncode != 0
    assert "ce: error" not in done.stderr


def _refused(cluster: Cluster, text: str, *options: str) -> str:
    done = cluster.srun(*options, f"--environment={cluster.edf(text, image='demo')}", "true")
    assert done.returncode != 0
    (line,) = causes(done)
    return line


def test_what_there_is_once_for_a_node_is_refused_in_a_line(cluster: Cluster) -> None:
    scope = f"[annotations]\n{_SCOPE}"
    save = '"com.ce.container_save" = "/tmp/x.sqsh"\n'
    for text, part in (
        (f'startup = ["true"]\n{scope}', "startup"),
        (f"{scope}{save}", "container_save"),
        (f'{scope}"com.ce.container_name" = "mine"\n', "container_name"),
        (scope.replace("crun", "podman"), "needs start"),
        (f'{scope}"com.hooks.ssh.enabled" = "true"\n', "hook 'ssh' starts a service"),
    ):
        line = _refused(cluster, text)
        assert part in line, line
        assert "com.ce.scope" in line


def test_ce_run_has_one_container_and_ce_exec_goes_into_one(cluster: Cluster, each: str) -> None:
    ce = str(cluster.prefix / "bin/ce")
    edf = each.partition("=")[2]
    done = cluster.run([ce, "run", edf, "--", "sh", "-c", "touch /x && echo made"])
    assert (done.stdout, done.returncode) == ("made\n", 0), done.stderr
    script = "echo $SLURM_PROCID >/who; echo $SLURM_JOB_ID; exec sleep 300"
    with started(cluster, "srun", "-wn1", "-n2", "-O", each, "sh", "-c", script) as job:
        number = job.wait_for_lines(2)[0]
        inside = [ce, "exec", number, "--", "cat", "/who"]
        done = cluster.run(["srun", f"--jobid={number}", "--overlap", "-wn1", *inside])
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
