"""Two test runs never share one cluster."""

import threading
from pathlib import Path

import pytest

from tests.lock import alone_on


def test_a_second_run_says_that_it_waits_and_gets_the_cluster_after_the_first(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    waits = threading.Event()

    def hear(line: str) -> None:
        said.append(line)
        waits.set()

    def second() -> None:
        with alone_on(tmp_path / "cluster", hear, within_s=20):
            said.append("got it")

    thread = threading.Thread(target=second)
    with alone_on(tmp_path / "cluster", said.append):
        thread.start()
        assert waits.wait(20)
        assert said == [f"another test run uses {tmp_path / 'cluster'}, waiting for at most 20 s"]
    thread.join(20)
    assert said[1:] == ["got it"]


def test_a_second_run_does_not_wait_for_ever(tmp_path: Path) -> None:
    said: list[str] = []
    with (
        alone_on(tmp_path, said.append),
        pytest.raises(AssertionError, match="another test run has used"),
        alone_on(tmp_path, said.append, within_s=0),
    ):
        raise RuntimeError("two runs share a cluster")
