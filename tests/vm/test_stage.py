"""Copies of images in the memory of two machines, and whose memory that is."""

import shlex

import pytest

from tests.vm.cluster import Cluster

pytestmark = pytest.mark.vm_long

# of the job, as its steps are counted: the shared memory, and the copies with their sizes
_COUNTED = """\
job=/sys/fs/cgroup$(sed 's,^0::,,; s,/step_.*,,' /proc/self/cgroup)
shared=$(sed -n 's/^shmem //p' $job/memory.stat)
echo $(hostname) $shared $(find /dev/shm -path '*/staged/*' -printf '%s %m ')
"""


def test_a_copy_counts_as_the_jobs_memory_and_goes_with_it(cluster: Cluster) -> None:
    script = f"ce stage debian && srun sh -c {shlex.quote(_COUNTED)}"
    script += " && srun --environment=debian hostname"
    said = cluster.alice("salloc", "-QN2", "sh", "-c", script).splitlines()
    (where,) = [line for line in said if "in the memory of vm[1-2], after" in line]
    assert where.startswith("/")
    counted = {line.split()[0]: line.split()[1:] for line in said if " 400" in line}
    assert sorted(counted) == ["vm1", "vm2"]
    for shared, size, mode in counted.values():
        assert mode == "400"
        assert int(size) <= int(shared) < 1.2 * int(size)
    assert [line for line in sorted(said) if line in {"vm1", "vm2"}] == ["vm1", "vm2"]
    cluster.assert_nothing_left()
    for machine in (cluster.first, cluster.second):
        assert cluster.root(machine, "find /dev/shm -type f -size +64k") == ""
