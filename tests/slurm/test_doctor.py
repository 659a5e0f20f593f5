"""`ce doctor` on the cluster: an administrator's view, with real findings."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.site import site_on

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


def test_in_a_heterogeneous_job_the_nodes_of_all_components_are_asked(cluster: Cluster) -> None:
    doctor = f"{cluster.prefix}/bin/ce doctor --all-nodes"
    for job in (["salloc", "-Q", "-N1", "-w", "n1"], ["salloc", "-Q", "-N1", ":", "-N1"]):
        done = cluster.run([*job, "sh", "-c", doctor])
        asked = "n[1-2]; 2 of 2" if ":" in job else "n1; 1 of 1"
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith(f"asked: {asked} can start containers\n"), done.stdout


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


@pytest.mark.parametrize(
    "policy",
    [
        "site_images_only = true",
        'denied_images = ["/tmp"]',
        f'image_digests = ["sha256:{"0" * 64}"]',
        'allowed_images = ["/nowhere"]',
    ],
)
def test_a_sites_policy_is_no_fault_of_the_node(
    cluster: Cluster, shared: Path, policy: str
) -> None:
    """Otherwise a health check that runs ce doctor would drain a whole cluster."""
    image = shared / "site/images/sha256-x-amd64.sqsh"
    image.parent.mkdir(parents=True)
    shutil.copy(cluster.image("busybox"), image)
    for path in (image, image.parent, image.parent.parent):
        os.chown(path, 0, 0)
        path.chmod(0o755)
    with site_on(cluster) as site:
        site.configure(f'image_stores = ["{shared}/site"]\n[policy]\n{policy}\n')
        done = cluster.run([str(cluster.prefix / "bin/ce"), "doctor", "--node"])
    assert done.returncode == 0, done.stdout
    [line] = [line for line in done.stdout.splitlines() if line[9:].startswith("a container")]
    admits = policy.startswith(("site_images_only", "denied"))
    words = "starts and ends in" if admits else "not tried: the site's policy refuses a test image"
    assert words in line, done.stdout


_CHECKS = """
[[checks]]
name = "disk"
program = "host"
inside = false
command = ["sh", "-c", "echo 95 % full; exit 3"]

[[checks]]
name = "image"
command = ["of-the-image"]
severity = "fail"
"""
_DEAD = """
[[checks]]
name = "gpu"
program = "host"
inside = false
command = ["sh", "-c", "exit 4"]
severity = "fail"
message = "the GPU is dead"
"""


def test_a_node_is_judged_by_the_sites_checks_that_need_no_image(cluster: Cluster) -> None:
    ce = [str(cluster.prefix / "bin/ce"), "doctor", "--node", "--json"]
    full = ("warning", "disk: sh ended with exit code 3, not 0; it printed: 95 % full")
    dead = ("failed", "gpu: the GPU is dead: sh ended with exit code 4, not 0")
    for checks, code, expected in ((_CHECKS, 0, full), (_DEAD + _CHECKS, 1, dead)):
        with site_on(cluster) as site:
            site.configure(checks)
            done = cluster.run(ce)
        found = [one for one in json.loads(done.stdout)["findings"] if one["check"] == "a check"]
        said = [(one["state"], one["message"].partition(": check ")[2]) for one in found]
        assert (done.returncode, said) == (code, [expected]), done.stdout
