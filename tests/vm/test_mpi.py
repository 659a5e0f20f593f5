"""MPI from images across the two machines: each has a kernel, an address and a host name."""

import os

import pytest

from ce_sandbox import images
from ce_sandbox.layout import from_environment
from tests.vm.cluster import Cluster, warned, write

# Sums of a ring and an allreduce over the ranks 0 to 3.
_RING = "ring 6 allreduce 6\n"
# The other interface leads to the host, and has the same address on both machines.
_NETWORK = {f"OMPI_MCA_{layer}_tcp_if_include": "10.0.9.0/24" for layer in ("btl", "oob")}


def environment(cluster: Cluster, image: str) -> str:
    """Put an image of the sandbox on the file server; return an environment with ssh and home."""
    file = images.provide(from_environment(os.environ), image)
    cluster.first.copy(file, f"/srv/apps/images/{image}.sqsh")
    lines = [
        f'image = "/apps/images/{image}.sqsh"',
        'mounts = ["${HOME}"]',
        "[env]",
        *(f'{name} = "{value}"' for name, value in _NETWORK.items()),
        "[annotations.com.hooks.ssh]",
        'enabled = "true"',
    ]
    write(cluster.first, f"/etc/edf/{image}.toml", "\n".join(lines))
    return f"--environment={image}"


# By TCP, ranks of MPICH 4.0 sometimes hang in MPI_Finalize, also without a container: its mpirun
# starts other programs here.
@pytest.mark.parametrize(
    ("image", "mpirun", "probe", "printed"),
    [
        ("openmpi", "mpirun -np 4", "mpi-probe ring", _RING),
        ("mpich", "mpirun -np 4 -hosts vm1:2,vm2:2 -iface eth1", "true", ""),
    ],
    ids=["openmpi", "mpich"],
)
def test_mpirun_inside_starts_ranks_on_both_machines(
    cluster: Cluster, image: str, mpirun: str, probe: str, printed: str
) -> None:
    # a new name, as the other machine's NFS client may remember an old file
    over = "/home/alice/over-$SLURM_JOB_ID"
    script = (
        f'if [ "$SLURM_PROCID" = 0 ]; then {mpirun} {probe}; {mpirun} hostname; touch {over}; fi;'
        f" while [ ! -e {over} ]; do sleep 1; done"
    )
    done = cluster.srun("-N2", "-n4", environment(cluster, image), "sh", "-c", script)
    cluster.root(cluster.first, "rm -f /srv/home/alice/over-*")
    assert (done.returncode, warned(done.stderr)) == (0, []), done.stdout + done.stderr
    assert done.stdout.startswith(printed)
    hosts = done.stdout.removeprefix(printed).split()
    assert sorted(hosts) == ["vm1", "vm1", "vm2", "vm2"]


def test_ranks_that_srun_starts_find_those_of_the_other_machine(cluster: Cluster) -> None:
    step = ("--mpi=pmix", "-N2", "-n4", environment(cluster, "openmpi"))
    done = cluster.srun(*step, "mpi-probe", "ring")
    assert (done.returncode, done.stdout, warned(done.stderr)) == (0, _RING, []), done.stderr
