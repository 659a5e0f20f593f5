"""Good nodes told from bad ones, by `ce vet` and by vetnode, on machines with a real network."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from ce_sandbox import images
from ce_sandbox.layout import from_environment
from tests.launchers.tools import installed, vetnode_suite
from tests.vm.cluster import STEP_S, Cluster, write
from tests.vm.test_mpi import environment

pytestmark = pytest.mark.vm_long

_LIMIT_S = 90


def test_mpi_starts_on_both_machines_and_one_that_is_cut_off_is_named(cluster: Cluster) -> None:
    open_mpi = environment(cluster, "openmpi").removeprefix("--environment=")
    both = cluster.alice("salloc", "-QN2", "ce", "vet", "--mpi=pmix", open_mpi)
    assert both == "good      vm[1-2]\n2 of 2 nodes are good\n"

    held = cluster.first.ssh("salloc -N2 --no-shell", "alice", STEP_S).stderr
    job = held.partition("allocation ")[2].split()[0]
    variables = ("env", f"SLURM_JOB_ID={job}", "SLURM_JOB_NODELIST=vm[1-2]")
    vet = ("ce", "vet", f"--limit={_LIMIT_S}", "--good-nodes=1", "debian")
    cluster.second.monitor("set_link cluster off")
    try:
        done = cluster.first.ssh(shlex.join((*variables, *vet)), "alice", STEP_S)
    finally:
        cluster.second.monitor("set_link cluster on")
    assert (done.returncode, done.stdout) == (0, "vm1\n"), done.stderr
    good, silent, number = done.stderr.splitlines()
    assert (good, number) == ("good      vm1", "1 of 2 nodes are good")
    assert silent.startswith("silent    vm2: ")


_CHECK = """\
image = "/apps/images/debian.sqsh"
[[checks]]
name = "memory"
severity = "fail"
command = ["sh", "-c", "test $$SLURMD_NODENAME = vm1 || { x=a; while :; do x=$$x$$x; done; }"]
limit_s = 60
"""


def test_a_node_is_out_of_memory_also_with_cgroup_v2_and_a_wrong_clock_is_told(
    cluster: Cluster,
) -> None:
    write(cluster.first, "/etc/edf/hungry.toml", _CHECK)
    vet = ("salloc", "-QN2", "--mem=300", "ce", "vet", f"--limit={3 * _LIMIT_S}", "hungry")
    cluster.root(cluster.second, "date -s '-120 seconds'")  # munge believes it for five minutes
    try:
        done = cluster.first.ssh(shlex.join(vet), "alice", STEP_S)
    finally:
        cluster.root(cluster.second, "date -s '+120 seconds'")
    good, failed, clock, number = done.stdout.splitlines()
    assert (good, number) == ("good      vm1", "1 of 2 nodes are good"), done.stderr
    said = "out of memory: /etc/edf/hungry.toml:2: check memory: sh was ended by SIGKILL"
    assert failed == f"failed    vm2: {said}"
    assert re.fullmatch(r" +warning: its clock is at least \d+ s behind that of vm1", clock)


_ENVIRONMENT = """\
image = "/apps/images/demo.sqsh"
mounts = ["/apps/images/vetnode.sqsh:/opt/vetnode:sqsh", "/etc/suite.yaml"]
[env]
PYTHONPATH = "/opt/vetnode"
[annotations]
com.hooks.slurm.enabled = "true"
"""


def test_vetnode_tells_the_good_machine_from_the_bad_one(cluster: Cluster, tmp_path: Path) -> None:
    """Its processes meet on the first node, which the second one reaches by its name."""
    (packages,) = installed("vetnode").glob("lib/python3*/site-packages")
    tools = tmp_path / "vetnode.sqsh"
    subprocess.run(["mksquashfs", packages, tools, "-quiet", "-no-progress"], check=True)
    for file in (tools, images.provide(from_environment(os.environ), "demo")):
        cluster.first.copy(file, f"/srv/apps/images/{file.name}")
    for machine in cluster.pair.machines:
        write(machine, "/etc/suite.yaml", vetnode_suite("vm1"))
        write(machine, "/etc/edf/vetnode.toml", _ENVIRONMENT)
    vetnode = ("python3", "-m", "vetnode", "diagnose", "--verbose", "/etc/suite.yaml")
    done = cluster.srun("-N2", "--environment=vetnode", *vetnode)
    assert done.returncode != 0
    assert "-0: Vetted]" in done.stdout, done.stdout + done.stderr
    assert "-1: Cordon]" in done.stdout, done.stdout + done.stderr
