"""Limits of containers in steps: of each task, and of all tasks of a node."""

import json
import os

import pytest

from tests.slurm.cluster import Cluster, Completed, causes
from tests.slurm.leftovers import helpers
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")

_TASKS = '"com.ce.scope" = "task"\n"com.ce.start" = "crun"\n'
_HOG = "import time; x = b'x' * (400 << 20); time.sleep(300)"


def _run(cluster: Cluster, limits: str, script: str, *options: str) -> Completed:
    edf = cluster.edf(f"writable = true\n[annotations]\n{limits}", image="demo")
    argv = ("-wn1", "-n4", "-O", "-K0", *options, f"--environment={edf}", "bash", "-c", script)
    return cluster.srun(*argv)


def _of_first(first: str, others: str = "sleep 6; echo $SLURM_PROCID lives") -> str:
    return f"if [ $SLURM_PROCID = 1 ]; then {first}; else {others}; fi"


@pytest.mark.parametrize(
    ("limit", "script", "words"),
    [
        (
            '"com.ce.memory_limit" = "200m"',
            f'python3 -c "{_HOG}"',
            "more than the 200 MiB of com.ce.memory_limit",
        ),
        (
            '"com.ce.memory_limit" = "200m"',
            "head -c 300M /dev/zero >/file; sleep 300",
            "more than the 200 MiB of com.ce.memory_limit",
        ),
        (
            '"com.ce.time_limit_s" = 20',
            "trap '' TERM; sleep 300 & sleep 300; wait",
            "longer than the 20 s",
        ),
    ],
)
def test_a_task_beyond_its_limit_ends_alone(
    cluster: Cluster, limit: str, script: str, words: str
) -> None:
    done = _run(cluster, f"{_TASKS}{limit}", _of_first(script))
    assert sorted(done.stdout.splitlines()) == ["0 lives", "2 lives", "3 lives"], done.stderr
    (line,) = causes(done)
    assert line.startswith("ce: error: n1: task 1: the container was ended: it "), line
    assert words in line
    assert "task 1: Killed" in done.stderr
    assert done.returncode == 137


def test_the_first_container_has_limits_as_well(cluster: Cluster) -> None:
    limits = f'{_TASKS}"com.ce.time_limit_s" = 3\n'
    done = _run(cluster, limits, "sleep 300")
    lines = sorted(causes(done))
    assert [line.split(": ")[3] for line in lines] == [f"task {n}" for n in range(4)], done.stderr
    assert done.stderr.count("ce: see: ce help container-limit") == 1
    assert done.returncode == 137


def test_a_task_behind_a_prolog_has_limits_as_well(cluster: Cluster) -> None:
    prolog = cluster.write("#!/bin/sh\necho export A=b\n", mode=0o755)
    limits = f'{_TASKS}"com.ce.time_limit_s" = 3\n"com.ce.pids_limit" = 9\n'
    done = _run(cluster, limits, "ulimit -u; sleep 300", f"--task-prolog={prolog}")
    assert done.stdout.split() == ["11"] * 4
    assert len(causes(done)) == 4, done.stderr
    assert done.stderr.count("ce: see: ce help container-limit") == 1


def test_each_task_may_have_as_many_processes_as_the_limit_says(cluster: Cluster) -> None:
    bomb = (
        "import os, time\n"
        "for n in range(1, 99):\n"
        "    try: pid = os.fork()\n"
        "    except BlockingIOError: print(n, flush=True); time.sleep(2); break\n"
        "    if pid == 0: time.sleep(10); os._exit(0)"
    )
    done = _run(cluster, f'{_TASKS}"com.ce.pids_limit" = 15\n', f'exec python3 -c "{bomb}"')
    assert done.stdout.split() == ["15"] * 4, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "com.ce.pids_limit" in line]
    assert len(warnings) == 4
    assert all("n1: task " in line and ": the container had 15 " in line for line in warnings)
    assert done.returncode == 0


def test_the_container_of_all_tasks_ends_them_all_with_one_line(cluster: Cluster) -> None:
    done = _run(cluster, '"com.ce.memory_limit" = "300m"\n', _of_first(f'python3 -c "{_HOG}"'))
    assert done.stdout == ""
    (line,) = causes(done)
    assert "the container was ended: it used" in line
    assert "ce: see: ce help container-limit" in done.stderr
    assert done.returncode != 0
    until("all to end", lambda: not list(helpers()))


def test_an_environment_has_the_limits_of_its_base_and_the_sites_last_word(
    cluster: Cluster,
) -> None:
    base = cluster.edf('[annotations]\n"com.ce.time_limit_s" = 2\n', image="demo")
    own = cluster.write(f'base_environment = "{base}"\n')
    own = own.rename(own.with_suffix(".toml"))
    done = cluster.srun("-wn1", f"--environment={own}", "sleep", "300")
    assert "longer than the 2 s of com.ce.time_limit_s" in causes(done)[0]


def test_a_container_of_a_job_has_no_limits(cluster: Cluster) -> None:
    limits = '"com.ce.time_limit_s" = 2\n"com.ce.scope" = "job"\n'
    done = _run(cluster, limits, "echo ran")
    assert (done.stdout, done.returncode) == ("", 125)
    assert "no limit can be kept for a container that lives with its job" in causes(done)[0]
    assert done.stderr.splitlines()[-1] == "ce: see: ce help limit-not-kept"


def test_of_many_containers_at_once_those_beyond_a_limit_end_alone(cluster: Cluster) -> None:
    edf = cluster.edf(
        f'[annotations]\n{_TASKS}"com.ce.pids_limit" = 20\n"com.ce.time_limit_s" = 15\n'
        '"com.ce.unshare" = "net,ipc,uts,pid,sys"\n',
        image="demo",
    )
    script = (
        "[ $((SLURM_PROCID % 8)) != 7 ] || exec sleep 300;"
        " echo $SLURM_PROCID $(ls -A /sys | wc -l) $(tail -n +3 /proc/net/dev | wc -l)"
    )
    argv = ("-wn1", "-n32", "-O", "-K0", f"--environment={edf}", "sh", "-c", script)
    done = cluster.srun(*argv)
    fine = [number for number in range(32) if number % 8 != 7]
    seen = sorted(tuple(map(int, line.split())) for line in done.stdout.splitlines())
    assert seen == [(number, 0, 1) for number in fine], done.stderr
    assert len(causes(done)) == 4


def test_many_commands_at_once_have_containers_and_limits_of_their_own(cluster: Cluster) -> None:
    limits = '"com.ce.pids_limit" = 20\n"com.ce.time_limit_s" = 60\n'
    edf = cluster.edf(f'[annotations]\n{limits}"com.ce.unshare" = "net,sys"\n', image="demo")
    ce = cluster.prefix / "bin/ce"
    place = cluster.scratch / f"many-{os.urandom(4).hex()}"
    place.mkdir()
    place.chmod(0o777)
    script = (
        f'for n in $(seq 24); do {ce} run --json {place}/$n {edf} -- sh -c "echo $n; exit $n" & '
        "done; wait"
    )
    done = cluster.run(["sh", "-c", script], timeout=300)
    assert sorted(map(int, done.stdout.split())) == list(range(1, 25)), done.stderr
    assert done.stderr == ""
    codes = {path.name: json.loads(path.read_text())["exit_code"] for path in place.iterdir()}
    assert codes == {str(number): number for number in range(1, 25)}
