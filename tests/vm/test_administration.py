"""Nodes that administrators, or programs that they have set up, work on under a step."""

from tests.slurm.polling import until
from tests.vm.cluster import DROP_CACHES, Cluster, errors

_NEW = "/usr/bin/crun /usr/bin/podman /usr/lib/*/libfuse3.so.3 /usr/lib/*/libsquashfs.so.1"
_NAMES = "/etc/resolv.conf /etc/hosts"
# name: what is done, and how it is undone once the step has read its image
_ACTS = {
    "systemd": ("systemctl daemon-reexec; systemctl restart systemd-logind", ""),
    "logout": ("loginctl terminate-user alice", ""),
    "ahead": ("date -s '+1 hour'", "date -s '-1 hour'"),
    "behind": ("date -s '-1 hour'", "date -s '+1 hour'"),
    "cleaning": ("systemd-tmpfiles --clean; find /tmp /dev/shm -mindepth 1 -xdev -delete", ""),
    "devices": ("udevadm trigger --action=change; udevadm settle", ""),
    "upgrade": (
        f"for f in {_NEW}; do f=$(readlink -f $f); cp -a $f $f.new; mv $f.new $f; done",
        "",
    ),
    "names": (
        f"for f in {_NAMES}; do mv $f $f.away; done",
        f"for f in {_NAMES}; do mv $f.away $f; done",
    ),
    "packets": ("ip link set eth1 mtu 600", "ip link set eth1 mtu 1500"),
    "munge": ("systemctl stop munge", "systemctl start munge"),
}
_READS = (
    "echo up; for act; do until [ -e /gate/$act ]; do sleep 1; done;"
    " cat /usr/bin/* >/dev/null && echo read $act; done; exit 3"
)


def test_a_step_notices_nothing_of_what_is_done_to_its_node(cluster: Cluster, gated: str) -> None:
    node = cluster.second
    step = ["-wvm2", f"--environment={gated}", "sh", "-c", _READS, "sh", *_ACTS]
    with cluster.started(*step) as job:
        job.wait_for("up\n")
        for name, (do, undo) in _ACTS.items():
            cluster.root(node, f"{do}; {DROP_CACHES}; touch /gate/{name}")
            try:
                job.wait_for(f"read {name}\n")
            finally:
                cluster.root(node, undo or "true")
        assert (job.wait(), errors(job.err)) == (3, [])
    again = cluster.srun("-wvm2", f"--environment={gated}", "sh", "-c", "exit 4")
    assert (again.returncode, errors(again.stderr)) == (4, [])


def test_a_step_ends_while_the_controller_is_away(cluster: Cluster, gated: str) -> None:
    step = ["-wvm2", f"--environment={gated}", "sh", "-c", f"{_READS}", "sh", "it"]
    with cluster.started(*step) as job:
        job.wait_for("up\n")
        cluster.root(cluster.first, "systemctl stop slurmctld")
        try:
            cluster.root(cluster.second, "touch /gate/it")
            job.wait_for("read it\n")
            gone = "the end of the container"
            until(gone, lambda: not cluster.placed(cluster.second), 60)
        finally:
            cluster.root(cluster.first, "systemctl start slurmctld")
        assert (job.wait(), errors(job.err)) == (3, [])
