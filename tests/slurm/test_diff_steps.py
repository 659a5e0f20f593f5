"""`ce diff` of real steps: what was different this time, and where that is written."""

import json
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, Completed
from tests.slurm.leftovers import steps
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")


def job_of(cluster: Cluster, *options: str) -> str:
    """Run a step and return its job, once its trace is whole."""
    done = cluster.srun(*options, "printenv", "SLURM_JOB_ID")
    assert done.returncode == 0, done.stderr
    until("the end of all steps", lambda: not steps())
    [job] = set(done.stdout.split())
    return job


def diff(cluster: Cluster, *words: str) -> Completed:
    return cluster.run([str(cluster.prefix / "bin/ce"), "diff", *words])


def test_a_line_inherited_from_a_base_explains_a_slow_job(cluster: Cluster) -> None:
    base = Path(cluster.edf('startup = ["true"]\n[env]\nAPI_TOKEN = "very secret"\n'))
    edf = cluster.edf(f'base_environment = "{base}"\n', image=None)
    fast = job_of(cluster, "-N2", f"--environment={edf}")
    again = job_of(cluster, "-N2", f"--environment={edf}")
    done = diff(cluster, fast, again)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    changed = base.read_text().replace('"true"', '"sleep 1"').replace("very secret", "another one")
    base.write_text(changed)
    slow = job_of(cluster, "-N1", f"--environment={edf}")
    done = diff(cluster, fast, slow)
    first, second, *others = done.stdout.splitlines()
    assert first == f'~ startup = "true" -> "sleep 1"  # {base}:2'
    assert second == f"~ env.API_TOKEN = (hidden) -> (hidden)  # {base}:4"
    assert others[0].startswith("~ tasks = ")
    assert others[1].startswith("~ nodes = ")
    assert others[-1].startswith("~ phase.startup = ")
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(diff(cluster, f"{fast}.0", slow, "--json").stdout)["differences"]
    assert found[0] == {
        "change": "changed",
        "key": "startup",
        "value": '"sleep 1"',
        "was": '"true"',
        "from": f"{base}:2",
    }


def test_what_cannot_be_compared_is_told_in_a_line(cluster: Cluster, demo: str) -> None:
    job = job_of(cluster, f"--environment={demo}")
    place = cluster.home() / ".local/state/container-engine"
    [trace] = (place / f"trace/{job}.0").glob("*.json")
    plan = json.loads(trace.read_text().splitlines()[0])["plan"]
    (place / "plans" / plan).unlink()
    done = diff(cluster, job, job)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"step {job}.0: its plan is no longer kept; values are not compared" in done.stderr
    for text, told in (
        ('{"version": 2, "phases": []}\n', "its traces have format 2, and this engine reads form"),
        ('{"version": 1, "phases": 7}\n', "its traces are damaged"),
        ("\0\0\0", "its traces are damaged"),
    ):
        trace.write_text(text)
        done = diff(cluster, job, job)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{job}.0: {told}" in done.stderr
    done = diff(cluster, "999999", job)
    assert done.returncode == 2
    assert "999999: no trace in " in done.stderr
