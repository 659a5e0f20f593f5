"""Limits of a container, as a node can keep them."""

import os
from types import SimpleNamespace

import pytest

from container_engine.base.errors import LaunchError
from container_engine.node.container.checks import limits
from container_engine.node.node_plan import NodePlan


def test_without_limits_nobody_looks_at_the_container() -> None:
    assert limits(NodePlan()) is None


@pytest.mark.parametrize(
    ("size", "expected"), [("", 0), ("300", 300), ("2k", 2048), ("3M", 3 << 20), ("4g", 4 << 30)]
)
def test_limits_are_in_bytes_processes_and_milliseconds(size: str, expected: int) -> None:
    plan = NodePlan(memory_limit=size, time_limit_s=1.5, unshare=["ipc", "pid"])
    assert limits(plan) == (expected, 0, 1500)


def test_a_limit_without_processes_of_its_own_starts_nothing() -> None:
    with pytest.raises(LaunchError, match="no processes of its own"):
        limits(NodePlan(time_limit_s=1, unshare=["ipc"]))


@pytest.mark.parametrize(
    ("uid", "release", "words"),
    [
        (1000, "4.18.0-553.el8_10.x86_64", "4.18.0-553.el8_10.x86_64 counts a user's processes"),
        (1000, "5.13.19", "it needs 5.14"),
        (0, "6.1.0", "the processes of root"),
    ],
)
def test_a_limit_of_processes_that_the_kernel_does_not_keep_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, uid: int, release: str, words: str
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    plan = NodePlan(pids_limit=5, unshare=["pid"])
    with pytest.raises(LaunchError) as caught:
        limits(plan)
    assert words in caught.value.message
    assert caught.value.see == "limit-not-kept"


@pytest.mark.parametrize("release", ["5.14.0-427.el9.x86_64", "6.12.48+deb13-amd64", "10.0"])
def test_newer_kernels_keep_a_limit_of_processes(
    monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    assert limits(NodePlan(pids_limit=5, unshare=["pid"])) == (0, 5, 0)
