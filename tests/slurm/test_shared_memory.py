"""Little room in the /dev/shm of a container is reported before the tasks fail there."""

import pytest

from tests.slurm.cluster import BOB, Cluster
from tests.slurm.error_block import changed_on, differing

pytestmark = pytest.mark.usefixtures("tidy")

_NEEDS = (
    "NCCL, MPI and a DataLoader's workers need more, and fail with 'No space left on device' or"
    " 'Bus error'"
)
_OWN = '(mounts = ["tmpfs:/dev/shm:size=16g"] gives the container its own)'
_SHARED, _MOUNT = "/dev/shm", 'mounts = ["tmpfs:/dev/shm:size={}"]\n'


_MPI = ("-n2", "--mpi=pmi2")
# of a container with a GPU
_GPU = "/dev/null:/dev/nvidiactl"


def said(cluster: Cluster, text: str = "", *, options: tuple[str, ...] = _MPI) -> list[str]:
    edf = cluster.edf(text)
    done = cluster.srun("-wn2", *options, f"--environment={edf}", "true")
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_shared_memory_with_room_or_for_one_task_is_not_spoken_of(cluster: Cluster) -> None:
    little = _MOUNT.format("64m")
    assert said(cluster) == said(cluster, _MOUNT.format("300m")) == []
    for options in (("-n1", "--mpi=pmi2"), ("-n2", "--mpi=none")):
        assert said(cluster, little, options=options) == []
    with_gpu = little.replace("[", f'["{_GPU}", ')
    assert len(said(cluster, with_gpu, options=("-n1", "--mpi=none"))) == 1


def test_an_environment_with_little_shared_memory_is_told(cluster: Cluster) -> None:
    line = f"ce: warning: n2: /dev/shm has 64 MiB left of 64: {_NEEDS} {_OWN}"
    # the second start is a recorded one
    for _start in range(2):
        assert said(cluster, _MOUNT.format("64m")) == [line]


def test_what_fills_a_nodes_shared_memory_is_named_with_its_owner(cluster: Cluster) -> None:
    filled = f"mkdir {_SHARED}/job7 && head -c 100M /dev/zero > {_SHARED}/job7/b"
    mount = ["mount", "-t", "tmpfs", "-osize=300m,mode=1777", "x", _SHARED]
    with differing(), changed_on("n2", mount, _SHARED):
        cluster.run(["srun", "-wn2", "sh", "-c", filled])
        most = "; the most, 100 MiB, is in 'job7', of"
        line = f"ce: warning: n2: /dev/shm has 200 MiB left of 300: {_NEEDS}{most}"
        assert said(cluster) == [f"{line} yours {_OWN}"]
        # as the job of somebody else sees it, in its own user namespace
        assert said(cluster, _MOUNT.format("300m")) == []
        edf = cluster.edf("", image="debian")
        done = cluster.run(["srun", "-wn2", *_MPI, f"--environment={edf}", "true"], BOB)
        assert done.stderr.splitlines() == [f"{line} another user {_OWN}"]
