"""Nodes whose AppArmor refuses user namespaces to steps, as Ubuntu's does to all programs."""

from collections.abc import Iterator

import pytest

from tests.vm.cluster import Cluster, errors, write

# Debian's kernel has no sysctl that refuses user namespaces to unconfined programs, as Ubuntu's:
# this profile confines what steps run instead, and refuses them nothing else.
_STEPS = """\
abi <abi/4.0>,
profile steps-of-a-test /usr/sbin/slurmstepd{,-wlm} flags=(attach_disconnected) {
  capability, network, mount, umount, pivot_root, ptrace, signal, unix, dbus, mqueue, io_uring,
  /{,**} rwlkm,
  /** pix,
}
"""
_OURS = "/etc/apparmor.d/ce-guard"


@pytest.fixture
def confined(cluster: Cluster) -> Iterator[None]:
    """Confine the steps of the second machine."""
    write(cluster.second, "/etc/apparmor.d/steps", _STEPS)
    cluster.root(cluster.second, "apparmor_parser -r /etc/apparmor.d/steps")
    yield
    cluster.root(
        cluster.second,
        f"for p in /etc/apparmor.d/steps {_OURS}; do ! [ -e $p ] || apparmor_parser -R $p; done;"
        f" rm -f /etc/apparmor.d/steps {_OURS}",
    )


@pytest.mark.usefixtures("confined")
def test_the_profile_of_the_engine_gives_its_guard_user_namespaces(cluster: Cluster) -> None:
    native = cluster.srun("-wvm2", "unshare", "-Ur", "true")
    assert native.returncode == 1
    assert "unshare failed: Permission denied" in native.stderr
    without = cluster.srun("-wvm2", "--environment=debian", "true")
    assert without.returncode == 125
    [line] = errors(without.stderr)
    assert "AppArmor or another security module of this node refuses user namespaces" in line
    assert "ce help user-namespaces" in without.stderr
    profile = "/opt/container-engine/share/container-engine/apparmor"
    cluster.root(cluster.second, f"cp {profile} {_OURS} && apparmor_parser -r {_OURS}")
    script = "cat /proc/self/attr/current; exit 3"
    done = cluster.srun("-wvm2", "--environment=debian", "sh", "-c", script)
    assert (done.returncode, errors(done.stderr)) == (3, [])
    assert done.stdout == "steps-of-a-test (enforce)\n"
