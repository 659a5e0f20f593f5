"""What a launch writes about itself, and that nothing of it can hurt a launch."""

import json
import os
import time
from pathlib import Path

import pytest

from container_engine.launch import trace
from tests.unit.launch.plans import plan

NODE = {
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_NODEID": "0",
    "SLURM_CE_PLANNED": "1700000000000000000 1700000000010000000",
}


def marks() -> trace.Marks:
    made = trace.Marks(0)
    made.mark("prepare")
    made.mark("namespaces")
    return made


def written(directory: Path) -> list[dict[str, object]]:
    lines = (directory / "12.3/n1.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_launch_is_one_line_with_its_phases_and_no_values(tmp_path: Path) -> None:
    fd = trace.open_file(str(tmp_path), NODE)
    made = marks()
    made.names = {"edf": ["TOKEN"]}
    trace.write(fd, plan(env=[{"name": "TOKEN", "value": "secret", "from": "e:1"}]), NODE, made)
    os.close(fd)
    [record] = written(tmp_path)
    assert [phase["name"] for phase in record["phases"]] == [  # type: ignore[attr-defined]
        "plan",
        "launch",
        "prepare",
        "namespaces",
    ]
    assert (record["job"], record["step"], record["error"]) == ("12", "3", "")
    assert "secret" not in json.dumps(record)


def test_the_guards_moments_stand_where_they_happened() -> None:
    made = marks()
    now = time.monotonic_ns()
    made.guard = (
        f"session {now}\nfuse {now + 1}\npodman {now + 5}\ncontainer {now + 9}\nready {now}\n"
    )
    while time.monotonic_ns() < now + 10:
        pass
    made.mark("answer")
    made.mark("end")
    names = [phase["name"] for phase in made.phases()]
    assert names == ["launch", "prepare", "namespaces", "mount", "create", "init", "answer"]


@pytest.mark.parametrize("directory", ["", "relative", "/dev/null/x", "/proc/nowhere"])
def test_a_place_that_cannot_be_written_costs_the_trace_and_nothing_else(directory: str) -> None:
    fd = trace.open_file(directory, NODE)
    assert fd == -1
    trace.write(fd, plan(), NODE, marks())


def test_of_all_nodes_only_the_first_says_the_same_thing(tmp_path: Path) -> None:
    first = trace.open_file(str(tmp_path), NODE)
    second = trace.open_file(str(tmp_path), {**NODE, "SLURM_NODEID": "1"})
    assert trace.is_news(first, NODE, "no such image")
    assert not trace.is_news(second, NODE, "no such image")
    assert trace.is_news(second, NODE, "something else")
    # the next srun with the same numbers, after a requeue
    assert trace.is_news(second, {**NODE, "SLURM_CE_PLANNED": "5 6"}, "no such image")
    os.close(first)
    os.close(second)


def test_nodes_without_a_common_place_all_speak() -> None:
    assert trace.is_news(-1, NODE, "no such image")
    assert trace.is_news(-1, NODE, "no such image")


def test_a_full_disk_costs_the_trace_and_nothing_else() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        trace.write(full.fileno(), plan(), NODE, marks())


def test_a_link_in_the_place_of_a_trace_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "12.3").mkdir()
    target = tmp_path / "precious"
    target.write_text("keep")
    (tmp_path / "12.3/n1.json").symlink_to(target)
    assert trace.open_file(str(tmp_path), NODE) == -1
    assert target.read_text() == "keep"


def test_old_steps_are_forgotten_by_their_number_and_foreign_files_kept(tmp_path: Path) -> None:
    for number in range(trace._KEPT + 5):
        (tmp_path / f"{number}.0").mkdir()
        (tmp_path / f"{number}.0/n1.json").write_text("{}")
    (tmp_path / "notes").mkdir()
    trace._forget_old(str(tmp_path))
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"notes", *(f"{number}.0" for number in range(5, trace._KEPT + 5))}
