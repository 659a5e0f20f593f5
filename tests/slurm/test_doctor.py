"""`ce doctor` on the cluster: an administrator's view, with real findings."""

import json
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.usefixtures("tidy")


def test_a_healthy_node_is_said_to_start_containers(cluster: Cluster) -> None:
    done = cluster.run([str(cluster.prefix / "bin/ce"), "doctor"])
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line[9:].split("  ")[0]: line for line in done.stdout.splitlines()}
    assert lines["a container"].startswith("ok")
    assert "starts and ends in" in lines["a container"]
    for check in ("user namespaces", "/dev/fuse", "plugstack.conf", "munge", "podman"):
        assert lines[check].startswith("ok"), lines[check]


def test_all_nodes_are_asked_and_their_answers_folded(cluster: Cluster, demo: str) -> None:
    # As from a job with an environment.
    env = {"SLURM_SPANK__SLURM_SPANK_OPTION_container_engine_environment": demo}
    done = cluster.run([str(cluster.prefix / "bin/ce"), "doctor", "--all-nodes"], env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("asked: n[1-2]; 2 of 2 can start containers\n")


def test_a_store_that_cannot_be_written_is_found(cluster: Cluster, shared: Path) -> None:
    store = shared / "store"
    store.mkdir(mode=0o755)
    done = cluster.run(
        [str(cluster.prefix / "bin/ce"), "doctor", "--json"], env={"EDF_IMAGESTORE": str(store)}
    )
    found = {entry["check"]: entry for entry in json.loads(done.stdout)["findings"]}
    assert found["image store"]["state"] == "failed"
    assert str(store) in found["image store"]["message"]
    assert "EDF_IMAGESTORE" in found["image store"]["remedy"]
    assert done.returncode == 1
