"""Answers of many nodes become lines that a person can read."""

from container_engine.doctor.cluster import Answer, fold
from container_engine.doctor.finding import failed, ok, warning


def test_equal_findings_are_one_with_all_their_nodes_and_the_worst_come_last() -> None:
    old = warning("podman", "4.0.0: older than all that was tested", "upgrade")
    mode = failed("/dev/fuse", "mode 0600", "chmod")
    fine = ok("kernel", "6.1.0")
    folded = fold([Answer("n2", (fine, mode)), Answer("n1", (mode, old)), Answer("n3", (fine,))])
    assert folded == [(fine, ("n2", "n3")), (old, ("n1",)), (mode, ("n1", "n2"))]
