"""Memory that the control groups of a job leave for copies of images."""

import math
from pathlib import Path

import pytest

from container_engine.tools.staging import memory_left


def _group(directory: Path, **files: str) -> None:
    directory.mkdir(parents=True)
    for name, text in files.items():
        (directory / f"memory.{name}").write_text(f"{text}\n")


def test_the_group_with_least_room_counts_and_page_cache_is_room(tmp_path: Path) -> None:
    stat = "anon 5\nactive_file 20\ninactive_file 3\nworkingset 1000"
    _group(tmp_path / "job_7", max="1000", current="900", stat=stat)
    _group(tmp_path / "job_7/step_0", max="max", current="800", stat=stat)
    groups = tmp_path / "cgroup"
    groups.write_text("0::/job_7/step_0\n")
    assert memory_left(str(tmp_path), str(groups)) == 123


def test_version_1_has_other_names(tmp_path: Path) -> None:
    stat = "active_file 1\ntotal_active_file 20\ntotal_inactive_file 3"
    for place, limit in {"job_7": "1000", "job_7/step_0": "2000"}.items():
        files = {"limit_in_bytes": limit, "usage_in_bytes": "900", "stat": stat}
        _group(tmp_path / "memory" / place, **files)
    groups = tmp_path / "cgroup"
    groups.write_text("6:freezer:/x\n4:memory:/job_7/step_0\n0::/\n")
    assert memory_left(str(tmp_path), str(groups)) == 123


@pytest.mark.parametrize("text", ["", "0::/\n", "0::/gone/away\n"])
def test_without_a_limit_all_is_left(tmp_path: Path, text: str) -> None:
    groups = tmp_path / "cgroup"
    groups.write_text(text)
    assert memory_left(str(tmp_path), str(groups)) == math.inf
