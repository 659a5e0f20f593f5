"""The trace of a real launch: the output of `ce trace` after a step, without secrets."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, causes
from tests.slurm.job import started
from tests.slurm.leftovers import assert_nothing_left, helpers, public_files, steps
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")


def trace(cluster: Cluster, job: str, *options: str) -> str:
    """Return the trace once the nodes are done; srun may end before them."""
    until("the end of all steps", lambda: not steps())
    done = cluster.run([str(cluster.prefix / "bin/ce"), "trace", job, *options])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_step_leaves_a_trace_of_each_node_with_phases_tasks_and_end(
    cluster: Cluster, shared: Path
) -> None:
    edf = cluster.edf('startup = ["true"]\n[env]\nTOKEN = "very secret"\n')
    done = cluster.srun("-N2", "-n4", f"--environment={edf}", "printenv", "SLURM_JOB_ID")
    assert done.returncode == 0, done.stderr
    [job] = set(done.stdout.split())
    text = trace(cluster, job)
    assert text.startswith(f"step {job}.0: 2 nodes, 4 tasks\n")
    for phase in ("plan", "launch", "mount", "create", "startup", "first join", "last join"):
        assert f"\n{phase}" in text
    assert "very secret" not in trace(cluster, job, "--json")
    for node in json.loads(trace(cluster, job, "--json"))["nodes"]:
        assert node["end"] >= node["phases"][-1]["end"]
        assert node["variables"]["edf"] == ["TOKEN"]
    assert trace(cluster, "last") == text
    done = cluster.run([str(cluster.prefix / "bin/ce"), "trace"])
    head, newest = done.stdout.splitlines()[:2]
    assert head.split() == ["STEP", "STARTED", "NODES", "START", "TOOK", "STATE", "ENVIRONMENT"]
    assert newest.split()[0] == f"{job}.0"
    assert newest.split()[-2:] == ["ended", edf]
    timeline = shared / "launch.json"
    trace(cluster, job, f"--perfetto={timeline}")
    assert timeline.read_text().count('"ph": "X"') >= 20


@contextmanager
def _late(cluster: Cluster) -> Iterator[None]:
    """Delay launchers just after their answer to the tasks, as on a busy processor."""
    module = cluster.module("node/start/launcher.py")
    text = module.read_text()
    line = "        go_on(ready.control, ready.end)\n"
    late = text.replace(line, f"        time.sleep(0.3)\n{line}")
    assert late != text
    aside = module.rename(module.with_suffix(".aside"))
    try:
        module.write_text(late.replace("\nimport os\n", "\nimport os\nimport time\n", 1))
        yield
    finally:
        aside.rename(module)


def test_the_trace_is_whole_also_when_the_tasks_end_before_the_launcher(
    cluster: Cluster, demo: str
) -> None:
    with _late(cluster):
        done = cluster.srun("-N2", f"--environment={demo}", "printenv", "SLURM_JOB_ID")
    [job] = set(done.stdout.split())
    assert trace(cluster, job).startswith(f"step {job}.0: 2 nodes, 2 tasks\n")


def test_a_container_that_ends_before_its_launcher_is_told_of_once_and_has_its_trace(
    cluster: Cluster, demo: str
) -> None:
    before = public_files()
    script = 'echo "$SLURM_JOB_ID"; exec sleep 1000'
    with (
        _late(cluster),
        started(cluster, "srun", f"--environment={demo}", "sh", "-c", script) as step,
    ):
        [job] = step.wait_for_lines(1)
        [guard] = [helper for helper in helpers() if helper.comm == "ce-guard"]
        os.kill(guard.pid, signal.SIGKILL)
        done = step.wait()
    assert_nothing_left(cluster)
    assert len(causes(done)) == 1, done.stderr
    assert trace(cluster, job).startswith(f"step {job}.0: 1 node, 1 task\n")
    assert public_files() <= before


def test_what_all_nodes_would_say_is_said_once_and_slurm_names_the_nodes(cluster: Cluster) -> None:
    edf = cluster.edf('mounts = ["/nowhere/${SLURM_JOB_ID}:/mnt"]\n')
    done = cluster.srun("-N2", "-n4", f"--environment={edf}", "true")
    assert done.returncode == 125
    assert len(causes(done)) == 1
    for node in ("n1", "n2"):
        assert re.search(rf"srun: error: {node}: tasks? ", done.stderr)


def test_the_trace_of_a_step_that_failed_has_the_cause(cluster: Cluster) -> None:
    edf = cluster.edf('mounts = ["/nowhere/${SLURM_JOB_ID}:/mnt"]\n')
    done = cluster.srun("-w", "n1", f"--environment={edf}", "true")
    assert done.returncode == 125
    text = trace(cluster, done.stderr.partition("/nowhere/")[2].split("'")[0])
    assert "failed: n1: " in text
    assert "does not exist" in text
