"""Figures of what each node has read from image files: at the end of a step, while it runs."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import Cluster, causes
from tests.slurm.job import batch, job_id, started
from tests.slurm.leftovers import helpers, steps
from tests.slurm.polling import until
from tests.slurm.test_starts_again import Node
from tests.slurm.test_starts_again import node as node  # noqa: PLC0414  # a fixture

pytestmark = pytest.mark.usefixtures("tidy")

_ALL = "find /usr -type f -exec cat {} + | wc -c"
_LIBRARIES = 'find /usr -type f -name "*.so*" -exec cat {} + | wc -c'
_HOLD = "echo up; read line"
Reads = dict[str, list[dict[str, Any]]]


def ce(cluster: Cluster, *words: str) -> str:
    done = cluster.run([str(cluster.prefix / "bin/ce"), *words])
    assert done.returncode == 0, done.stderr
    return done.stdout


def at_end(cluster: Cluster, step: str) -> Reads:
    """Return what the nodes of a step have read, by their names."""
    until("the end of all steps", lambda: not steps())
    document = json.loads(ce(cluster, "trace", step, "--json"))
    return {node["node"]: node["image_reads"] for node in document["nodes"]}


def on_first(cluster: Cluster, step: str) -> dict[str, Any]:
    [one] = at_end(cluster, step)["n1"]
    return dict(one)


def test_what_a_server_has_read_of_its_file_is_in_the_list_of_steps_and_in_the_trace(
    cluster: Cluster, demo: str
) -> None:
    script = f"{_ALL}; {_HOLD}"
    with started(cluster, "srun", "-wn1", f"--environment={demo}", "sh", "-c", script) as step:
        step.wait_for_lines(2)
        [server] = [helper for helper in helpers() if helper.comm == "ce-image"]
        io = Path(f"/proc/{server.pid}/io").read_text()
        whole = dict(line.split(": ") for line in io.splitlines())
        [shown] = json.loads(ce(cluster, "ps", "-v", "--json"))["steps"]
        [running] = shown["image_reads"]["n1"]
        text = ce(cluster, "ps", "-v")
        job = job_id(cluster)
        step.write("\n")
        assert step.wait().returncode == 0
    image = cluster.image("demo")
    size = image.stat().st_size
    assert (running["path"], running["size"], running["shared"]) == (str(image), size, False)
    assert f"step {job}.0: read since the mount: {image} (" in text
    # the rest is what the kernel asks at /dev/fuse, and the server's own libraries
    assert 0 <= int(whole["rchar"]) - running["bytes"] < 300 * running["requests"] + (1 << 17)
    assert running["reads"] <= int(whole["syscr"])
    assert 0.7 * size < running["bytes"] < 3 * size
    assert running["requests"] > running["lookups"] > 20
    assert running["misses"] > 20
    assert running["waited_ns"] > 0
    ended = on_first(cluster, f"{job}.0")
    assert all(ended[name] >= running[name] for name in ("bytes", "reads", "requests"))
    assert ended["bytes"] < running["bytes"] + size / 4


def test_a_trace_has_the_sum_of_all_nodes_and_the_one_that_has_read_most(
    cluster: Cluster, demo: str
) -> None:
    more = f'[ "$SLURMD_NODENAME" = n1 ] || {_ALL} >/dev/null'
    script = f"{more}; echo $SLURM_JOB_ID"
    done = cluster.srun("-N2", "-n2", f"--environment={demo}", "sh", "-c", script)
    [job] = set(done.stdout.split())
    [one], [two] = (at_end(cluster, job)[name] for name in ("n1", "n2"))
    assert two["bytes"] > one["bytes"] > 0
    text = ce(cluster, "trace", job)
    [row] = [line.split() for line in text.splitlines() if line.startswith("reads of the file")]
    assert row[4:] == [str(one["reads"] + two["reads"]), str(two["reads"]), "n2"]
    assert f"read since the mount: {cluster.image('demo')} (" in text


def test_steps_of_a_batch_job_have_the_figures_of_the_mount_that_they_share(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    run = f"srun --environment={demo} sh -c '{_LIBRARIES}'\n"
    out = shared / "out"
    script = cluster.write(f"#!/bin/bash\necho $SLURM_JOB_ID\n{run}{run}", mode=0o755)
    batch(cluster, "-wn1", "-N1", "-n1", f"-o{out}", str(script))
    job = out.read_text().split()[0]
    first, second = (on_first(cluster, f"{job}.{number}") for number in (0, 1))
    assert first["shared"]
    # what is read ahead may go on after the first step, but no block is read for each step
    size = cluster.image("demo").stat().st_size
    assert 1 << 20 < first["bytes"] <= second["bytes"] < 1.2 * size
    assert second["requests"] > first["requests"]
    assert "read since the mount, shared by the steps of the job: " in ce(cluster, "trace", job)


def test_each_image_of_a_step_has_figures_and_is_named_once(cluster: Cluster) -> None:
    demo, tools = cluster.image("demo"), cluster.image("busybox")
    mounts = [f"{tools}:/opt/tools:sqsh", f"{tools}:/opt/again:sqsh"]
    edf = cluster.edf(f"mounts = {mounts}\n")
    script = "cat /opt/tools/bin/busybox | wc -c; echo $SLURM_JOB_ID"
    done = cluster.srun("-wn1", f"--environment={edf}", "sh", "-c", script)
    read, job = done.stdout.split()
    found = at_end(cluster, job)["n1"]
    assert {one["path"] for one in found} == {str(demo), str(tools)}
    assert sum(one["bytes"] for one in found if one["path"] == str(tools)) > int(read) / 10
    assert ce(cluster, "trace", job).count(f"{tools} (") == 1


def test_a_killed_server_has_no_figures_and_ends_its_step_as_ever(
    cluster: Cluster, demo: str
) -> None:
    with started(cluster, "srun", "-wn1", f"--environment={demo}", "sh", "-c", _HOLD) as step:
        step.wait_for_lines(1)
        job = job_id(cluster)
        [server] = [helper for helper in helpers() if helper.comm == "ce-image"]
        os.kill(server.pid, signal.SIGKILL)
        done = step.wait()
    [cause] = causes(done)
    assert "the process that serves the image (ce-image) was killed" in cause
    assert at_end(cluster, job) == {"n1": []}
    assert "read since" not in ce(cluster, "trace", job)


def test_a_start_without_python_has_figures_like_any_other(node: Node, demo: str) -> None:
    while node.is_python(demo):
        pass
    done, is_python = node.srun(f"--environment={demo}", "printenv", "SLURM_JOB_ID")
    assert not is_python
    assert on_first(node.cluster, done.stdout.strip())["bytes"] > 1 << 16


@pytest.mark.parametrize("joining", ["c", "c:exec", "$SLURM_JOB_ID.0"])
def test_a_step_that_joins_has_the_figures_of_the_containers_mount(
    cluster: Cluster, shared: Path, joining: str
) -> None:
    edf = cluster.edf(f'mounts = ["{shared}"]\n')
    wait = f"touch {shared}/up; until [ -e {shared}/over ]; do sleep 0.1; done"
    srun = "srun -n1 --overlap"
    script = (
        f"{srun} --environment={edf} --container-name=c sh -c '{wait}' &\n"
        f"until [ -e {shared}/up ]; do sleep 0.1; done\n"
        f"{srun} --container-name={joining} sh -c '{_LIBRARIES}'\n"
        f"touch {shared}/over; wait; echo $SLURM_JOB_ID\n"
    )
    done = cluster.run(["salloc", "--quiet", "-N1", "-wn1", "sh", "-ec", script], timeout=120)
    assert done.returncode == 0, done.stderr
    job = done.stdout.split()[-1]
    first, second = (on_first(cluster, f"{job}.{number}") for number in (0, 1))
    assert (first["path"], first["shared"]) == (second["path"], True)
    assert first["bytes"] >= second["bytes"] > 1 << 20
