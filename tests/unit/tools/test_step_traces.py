"""Traces of nodes, summarised for the user of a launch."""

import json
import os
import pwd
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from container_engine.base.errors import UserError
from container_engine.cli.main import main
from container_engine.cli.verbs.trace import moment
from container_engine.tools import step_traces

SECOND = 1_000_000_000
BEGIN = 1_700_000_000 * SECOND
MS = 1_000_000


def facts(create_ms: int, **more: object) -> dict[str, Any]:
    """Return a launch with planning of 10 ms, 20 ms until Podman, and `create_ms` in Podman."""
    times = {"plan": (0, 10), "launch": (30, 50), "create": (50, 50 + create_ms)}
    phases = [
        {"name": name, "begin": BEGIN + begin * MS, "end": BEGIN + end * MS}
        for name, (begin, end) in times.items()
    ]
    return {
        "version": 1,
        "environment": "torch",
        "files": ["/home/alice/.edf/torch.toml"],
        "image": {"name": "debian", "path": "/store/debian.sqsh", "digest": "sha256:12"},
        "hooks": [{"name": "cxi", "release": "1", "reason": "implied by aws_ofi_nccl"}],
        "mounts": [{"source": "/a<b>", "target": "/data", "from": "torch.toml:3"}],
        "variables": {"edf": ["TOKEN"]},
        "phases": phases,
        "error": "",
        **more,
    }


def write(directory: Path, step: str, node: str, *lines: object) -> None:
    (directory / step).mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / step / f"{node}.json").write_text(text)


def ended(first_ms: int, last_ms: int, joined: int = 2) -> dict[str, int]:
    return {
        "end": BEGIN + 2 * SECOND,
        "first_join": BEGIN + first_ms * MS,
        "last_join": BEGIN + last_ms * MS,
        "joined": joined,
    }


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """Write step 7.0 on n1 to n10, of which n10 was slow."""
    for number in range(1, 10):
        write(tmp_path, "7.0", f"n{number}", facts(50), ended(101, 102))
    write(tmp_path, "7.0", "n10", facts(400), ended(451, 455))
    return tmp_path


def test_nodes_are_in_the_order_of_their_numbers(step: Path) -> None:
    names = [trace.node for trace in step_traces.read(str(step), "7.0")]
    assert names == [f"n{number}" for number in range(1, 11)]


@pytest.mark.parametrize("has_ended", [True, False], ids=["requeued", "power lost"])
def test_what_an_earlier_run_of_the_job_had_on_another_node_is_left_out(
    tmp_path: Path, has_ended: bool
) -> None:
    again = json.loads(json.dumps(facts(50)), object_hook=_two_minutes_later)
    write(tmp_path, "7.0", "n3", again)
    write(tmp_path, "7.0", "n2", {**again, "environment": "new"})
    write(tmp_path, "7.0", "n1", facts(50), *[ended(101, 102)] * has_ended)
    os.utime(tmp_path / "7.0/n1.json", (1, 1))
    os.utime(tmp_path / "7.0/n3.json", (2, 2))
    assert [trace.node for trace in step_traces.read(str(tmp_path), "7.0")] == ["n2", "n3"]
    first = step_traces.first(str(tmp_path), "7.0")
    assert first is not None
    assert first.facts["environment"] == "new"


def test_the_trace_of_a_node_whose_clock_is_wrong_is_of_the_same_run(tmp_path: Path) -> None:
    plan, *on_node = json.loads(json.dumps(facts(50)), object_hook=_two_minutes_later)["phases"]
    write(tmp_path, "7.0", "n1", facts(50, phases=[plan, *on_node]))
    write(tmp_path, "7.0", "n2", facts(50, phases=[plan, *facts(50)["phases"][1:]]))
    assert [trace.node for trace in step_traces.read(str(tmp_path), "7.0")] == ["n1", "n2"]


def _two_minutes_later(part: dict[str, Any]) -> dict[str, Any]:
    times = [key for key in ("begin", "end") if key in part]
    return {**part, **{key: part[key] + 120 * SECOND for key in times}}


def test_a_start_lasts_from_the_fork_to_the_last_task(step: Path) -> None:
    first = step_traces.read(str(step), "7.0")[0]
    assert first.start_took == pytest.approx(0.072, abs=1e-6)
    assert (first.joined, first.end) == (2, 1_700_000_002.0)


def test_nodes_without_a_trace_are_named(tmp_path: Path) -> None:
    write(tmp_path, "7.0", "n1", facts(50, nodes="n[1-3]"), ended(101, 102))
    write(tmp_path, "7.0", "n3", facts(50, nodes="n[1-3]"), ended(101, 102))
    traces = step_traces.read(str(tmp_path), "7.0")
    lines = list(step_traces.lines("7.0", traces))
    assert lines[0] == "step 7.0: 2 of 3 nodes, 4 tasks"
    assert lines[-1] == "no trace of n2: still starting, interrupted, or not kept here"


@pytest.mark.parametrize("nodes", ["n[1-10]", "", "n[1-x]"])
def test_no_trace_is_reported_missing_if_all_are_there_or_the_nodes_are_unknown(
    step: Path, nodes: str
) -> None:
    write(step, "7.0", "n1", facts(50, nodes=nodes), ended(101, 102))
    lines = list(step_traces.lines("7.0", step_traces.read(str(step), "7.0")))
    assert lines[0] == "step 7.0: 10 nodes, 20 tasks"
    assert "no trace" not in lines[-1]


def test_many_missing_nodes_are_ranges(tmp_path: Path) -> None:
    write(tmp_path, "7.0", "n7", facts(50, nodes="n[1-20]"), ended(101, 102))
    last = list(step_traces.lines("7.0", step_traces.read(str(tmp_path), "7.0")))[-1]
    assert last.startswith("no trace of n[1-6,8-20]: ")


_CHECK = {"of": "fabric", "name": "ring", "verdict": "passed", "problem": "", "role": "client"}


def _check(number: int, problem: str = "") -> dict[str, Any]:
    times = {"begin": BEGIN, "end": BEGIN + number * MS, "peer": f"n{number + 1}"}
    return {**_CHECK, **times, **({"verdict": "failed", "problem": problem} if problem else {})}


def test_what_a_thousand_nodes_say_alike_is_one_line(tmp_path: Path) -> None:
    for number in range(1, 1001):
        end = f"no such file of rank {number}" if number > 900 else "no such file"
        check = _check(number, "no link" if number == 77 else "")
        write(tmp_path, "7.0", f"n{number}", facts(number, error=end, checks=[check]))
    lines = list(step_traces.lines("7.0", step_traces.read(str(tmp_path), "7.0")))
    assert lines[1] == "failed: n[1-900]: no such file"
    assert lines[20] == "failed: n919: no such file of rank 919"
    assert lines[21] == "and 81 more such lines: see ce trace --json"
    head = "check        n"
    assert f"{head}[1-76,78-1000]: fabric: ring (client): passed in at most 1000.0 ms" in lines
    assert f"{head}77: fabric: ring (client of n78): failed in 77.0 ms: no link" in lines
    assert "slow: n1000 took 1020.0 ms" in lines
    assert lines[-1] == "and 220 more such lines: see ce trace --json"
    assert len(lines) < 80


def test_the_table_names_phases_tasks_and_the_slow_node(step: Path) -> None:
    lines = list(step_traces.lines("7.0", step_traces.read(str(step), "7.0")))
    assert lines[0] == "step 7.0: 10 nodes, 20 tasks"
    began = time.strftime("%d %b %Y %H:%M:%S", time.localtime(BEGIN / SECOND))
    assert lines[1] == f"started      {began}"
    assert "hook         cxi 1: implied by aws_ofi_nccl" in lines
    rows = {line.split("  ")[0]: line.split() for line in lines if " ms " in line}
    assert rows["plan"][7:9] == ["submit", "host"]
    create = "create 50.0 ms 50.0 ms 400.0 ms n10 crun or Podman creates the container"
    assert " ".join(rows["create"]) == create
    assert "slow: n10 took 425.0 ms" in lines


def reads(size: int, path: str = "/store/a.sqsh", **more: object) -> dict[str, object]:
    figures = {"reads": 2, "waited_ns": 3 * MS, "requests": 4, "lookups": 5, "hits": 6, "misses": 7}
    return {"bytes": size, **figures, "size": 1 << 20, "shared": False, "path": path, **more}


def test_what_was_read_of_each_image_file_is_a_sum_and_the_most_of_a_node(tmp_path: Path) -> None:
    for node, size in (("n1", 1 << 18), ("n2", 1 << 19)):
        of_node = [reads(size), reads(7, "/b.sqsh", shared=True)]
        write(tmp_path, "7.0", node, facts(50), {**ended(101, 102), "image_reads": of_node})
    traces = step_traces.read(str(tmp_path), "7.0")
    lines = [" ".join(line.split()) for line in step_traces.lines("7.0", traces)]
    own = lines.index("read since the mount: /store/a.sqsh (1.0 MiB)")
    assert lines[own + 1 : own + 5] == [
        "SUM MOST ON",
        "bytes of the file 768 KiB 512 KiB n2",
        "reads of the file 4 2 n1",
        "time waited for these 6.0 ms 3.0 ms n1",
    ]
    assert "read since the mount, shared by the steps of the job: /b.sqsh (1.0 MiB)" in lines


@pytest.mark.parametrize(
    "wrong",
    [
        *({"bytes": -1}, {"bytes": "1"}, {"bytes": 1 << 64}, {"size": None}, {"path": 1}),
        {"shared": "yes"},
    ],
)
def test_figures_that_no_server_has_counted_are_left_out_of_a_trace(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    listed = [reads(5, "/good"), {**reads(5), **wrong}, 1]
    every: tuple[object, ...] = (listed, None, 1, {})
    for number, found in enumerate(every):
        write(tmp_path, f"{number}.0", "n1", facts(50), {**ended(1, 2), "image_reads": found})
        [trace] = step_traces.read(str(tmp_path), f"{number}.0")
        assert [one["path"] for one in trace.reads] == ["/good"] * (found is listed)


def test_tasks_of_a_running_step_are_not_counted(tmp_path: Path) -> None:
    write(tmp_path, "7.0", "n1", facts(50))
    assert (
        next(step_traces.lines("7.0", step_traces.read(str(tmp_path), "7.0"))) == "step 7.0: 1 node"
    )


def test_a_node_that_failed_is_listed_with_its_cause(tmp_path: Path) -> None:
    write(tmp_path, "7.0", "n1", facts(5, error="mount source '/x': does not exist"))
    lines = list(step_traces.lines("7.0", step_traces.read(str(tmp_path), "7.0")))
    assert lines[:2] == [
        "step 7.0: 1 node, 0 tasks",
        "failed: n1: mount source '/x': does not exist",
    ]


def test_tasks_that_did_not_start_are_counted_and_their_node_marked(tmp_path: Path) -> None:
    write(tmp_path, "7.0", "n1", facts(50, tasks="4"), ended(101, 102))
    write(tmp_path, "7.0", "n2", facts(5, tasks="4", error="no <mount>"))
    traces = step_traces.read(str(tmp_path), "7.0")
    lines = list(step_traces.lines("7.0", traces))
    assert lines[:2] == ["step 7.0: 2 nodes, 2 of 4 tasks", "failed: n2: no <mount>"]
    assert step_traces.state(traces) == "failed on n2"


@pytest.mark.parametrize(
    "wrong",
    [
        *({"environment": 1}, {"image": []}, {"image": {"name": "x"}}, {"error": None}),
        *({"hooks": [1]}, {"hooks": [{"name": "x"}]}, {"phases": []}, {"phases": [{}]}),
        {"phases": [{"name": "launch", "begin": 10**40, "end": 1e999}]},
    ],
)
def test_what_no_launch_writes_is_not_read(tmp_path: Path, wrong: dict[str, object]) -> None:
    write(tmp_path, "7.0", "n1", {**facts(5), **wrong})
    write(tmp_path, "7.0", "n2", facts(5), {**ended(51, 52), "joined": "2"})
    assert step_traces.read(str(tmp_path), "7.0") == []


def test_every_phase_is_explained() -> None:
    guide = (Path(__file__).parents[3] / "docs/guide/troubleshooting.md").read_text()
    assert [phase for phase in step_traces.PHASES if f"| `{phase}` |" not in guide] == []


def site(tmp_path: Path, trace_dir: str) -> str:
    (tmp_path / "config.toml").write_text(f'trace_dir = "{trace_dir}"\n')
    return str(tmp_path / "config.toml")


def test_the_steps_of_all_users_are_listed_with_their_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = tmp_path / "traces"
    write(traces, "7.0", "n1", facts(50), ended(51, 52))
    late = time.time_ns()
    phases = [{"name": "launch", "begin": late, "end": late}]
    write(traces, "8.0", "n1", {**facts(5, error="no mount"), "phases": phases})
    argv = ["--site", site(tmp_path, str(traces)), "trace", "--all"]
    assert main([*argv]) == 0
    me = pwd.getpwuid(os.geteuid()).pw_name
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["STEP", "USER", "STARTED"]
    assert sorted(row.split()[:2] for row in rows) == [["7.0", me], ["8.0", me]]
    assert main([*argv, "--since", "1h", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    schema = Path(__file__).parents[3] / "edf_schemas/trace.json"
    Draft202012Validator(json.loads(schema.read_text())).validate(document)
    assert document["version"] == 1
    [step] = document["steps"]
    assert (step["step"], step["user"], step["failed"]) == ("8.0", me, {"n1": "no mount"})


def test_a_list_of_all_users_needs_one_directory_and_a_time_that_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--site", site(tmp_path, "~/traces"), "trace", "--all"]) == 1
    assert "this site keeps traces in the users' homes" in capsys.readouterr().err
    assert main(["--site", site(tmp_path, str(tmp_path)), "trace", "--since", "soon"]) == 1
    assert "--since: 'soon' is not a time\nce: hint: for example 30m" in capsys.readouterr().err
    assert moment("2d", 200_000.0) == 200_000 - 2 * 86400
    assert moment("2026-01-31T12:00", 0) > 0


def test_the_end_may_be_noted_before_the_launcher_has_written(tmp_path: Path) -> None:
    write(tmp_path, "7.0", "n1", ended(51, 52), facts(5), ended(51, 52))
    (first,) = step_traces.read(str(tmp_path), "7.0")
    assert (first.joined, first.end) == (2, 1_700_000_002.0)


def test_a_job_means_its_newest_step_and_an_unknown_one_is_refused(step: Path) -> None:
    write(step, "7.1", "n1", facts(5))
    for when, name in enumerate(("7.0", "7.1")):
        os.utime(step / name, (when, when))
    assert step_traces.choose(str(step), "7", os.geteuid()) == "7.1"
    assert step_traces.choose(str(step), "7.0", os.geteuid()) == "7.0"
    os.utime(step / "7.0", (2, 2))
    assert step_traces.choose(str(step), "last", os.geteuid()) == "7.0"
    with pytest.raises(UserError, match=r"^8: no trace in "):
        step_traces.choose(str(step), "8", os.geteuid())


def test_a_step_of_another_user_is_told_from_one_without_a_trace(step: Path) -> None:
    with pytest.raises(UserError, match=r"^7: it is a job of \w+, and traces are private"):
        step_traces.choose(str(step), "7", os.geteuid() + 1)


def test_a_task_of_a_job_array_is_found_by_the_name_that_slurm_shows(step: Path) -> None:
    write(step, "9.0", "n1", facts(100, array="8_3"))
    write(step, "9.1", "n1", facts(100, array="8_3"))
    os.utime(step / "9.0", (1, 1))
    assert step_traces.choose(str(step), "8_3", os.geteuid()) == "9.1"
    assert step_traces.choose(str(step), "8_3.0", os.geteuid()) == "9.0"
    with pytest.raises(UserError, match=r"^8_4: no trace in "):
        step_traces.choose(str(step), "8_4", os.geteuid())


def test_a_component_of_a_heterogeneous_job_is_found_by_the_name_that_slurm_shows(
    step: Path,
) -> None:
    for wanted in ("7+0", "7+1", "7+1.0", "7.0+1"):
        assert step_traces.choose(str(step), wanted, os.geteuid()) == "7.0"
    with pytest.raises(UserError, match=r"^8\+1: no trace in "):
        step_traces.choose(str(step), "8+1", os.geteuid())


def test_root_is_shown_how_to_see_the_trace_of_a_users_job(step: Path) -> None:
    with pytest.raises(UserError) as caught:
        step_traces.choose(str(step), "8", 0)
    assert "as the job's user: su USER -c 'ce trace 8'" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null\n",
        '{"version": 1}\n',
        '{"version": 1, "phases": 3}\n',
        '{"version": 2}\n',
        "[]\n",
    ],
)
def test_a_trace_that_is_not_whole_is_left_out(tmp_path: Path, text: str) -> None:
    write(tmp_path, "7.0", "n1", facts(5))
    (tmp_path / "7.0/n2.json").write_text(text)
    assert [trace.node for trace in step_traces.read(str(tmp_path), "7.0")] == ["n1"]


def _link(path: Path) -> None:
    (path.parents[1] / "elsewhere").write_text(json.dumps(facts(5)))
    path.symlink_to(path.parents[1] / "elsewhere")


def _huge(path: Path) -> None:
    path.write_text(json.dumps(facts(5)) + "\n" * (1 << 20))


def _of_another(path: Path) -> None:
    path.write_text(json.dumps(facts(5)))
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize(
    "put", [_link, os.mkfifo, _huge, _of_another], ids=["link", "pipe", "huge", "of another"]
)
def test_what_no_node_has_written_is_neither_waited_for_nor_read(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    write(tmp_path, "7.0", "n1", facts(5))
    put(tmp_path / "7.0/n2.json")
    assert [trace.node for trace in step_traces.read(str(tmp_path), "7.0")] == ["n1"]


def test_perfetto_gets_microseconds_and_the_submit_host_apart(step: Path) -> None:
    events = json.loads(step_traces.for_perfetto("7.0", step_traces.read(str(step), "7.0")))[
        "traceEvents"
    ]
    create = [e for e in events if e["name"] == "create" and e["pid"] == 10]
    assert [(e["ph"], e["dur"]) for e in create] == [("X", 400_000)]
    assert [e["pid"] for e in events if e["name"] == "plan"] == [0]


def test_perfetto_gets_what_a_node_has_read_at_its_end(tmp_path: Path) -> None:
    write(tmp_path, "7.0", "n1", facts(50), {**ended(101, 102), "image_reads": [reads(9)]})
    traces = step_traces.read(str(tmp_path), "7.0")
    [point] = [
        e
        for e in json.loads(step_traces.for_perfetto("7.0", traces))["traceEvents"]
        if e["name"] == "read from /store/a.sqsh"
    ]
    assert (point["ph"], point["pid"], point["args"]) == ("i", 1, reads(9))
    assert point["ts"] == round(traces[0].seen * 1_000_000)


def test_links_and_other_users_traces_are_not_listed(step: Path) -> None:
    (step / "8.0").symlink_to(step / "7.0")
    other = os.geteuid() + 1
    assert step_traces.steps(str(step), os.geteuid()) == ["7.0"]
    assert step_traces.steps(str(step), other) == []
    assert step_traces.steps(str(step), 0) == ["7.0"]


def test_the_first_trace_is_had_without_reading_the_others(tmp_path: Path) -> None:
    write(tmp_path, "8.0", "n1", {"version": 0})
    write(tmp_path, "8.0", "n2", facts(50))
    (tmp_path / "8.0/n10.json").mkdir()
    os.utime(tmp_path / "8.0/n10.json", (1, 1))
    first = step_traces.first(str(tmp_path), "8.0")
    assert first is not None
    assert first.node == "n2"
    with pytest.raises(UserError, match=r"n10\.json: is a directory"):
        step_traces.read(str(tmp_path), "8.0")


def test_a_step_without_a_readable_trace_has_no_first(tmp_path: Path) -> None:
    write(tmp_path, "8.0", "n1", {"version": 0})
    assert step_traces.first(str(tmp_path), "8.0") is None


def test_a_step_that_is_removed_while_steps_are_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("6.0", "7.0"):
        write(tmp_path, name, "n1", facts(50))
    shutil.rmtree(tmp_path / "6.0")
    there = [*os.scandir(tmp_path), _Gone("6.0")]
    monkeypatch.setattr(os, "scandir", lambda _path: iter(there))
    assert step_traces.steps(str(tmp_path), os.getuid()) == ["7.0"]


class _Gone:
    """An entry of a directory whose file was removed before anybody looked at it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def stat(self, **_how: bool) -> os.stat_result:
        raise FileNotFoundError(self.name)


def test_a_removed_step_has_no_trace(tmp_path: Path) -> None:
    assert step_traces.read(str(tmp_path), "7.0") == []
    (tmp_path / "7.0").mkdir()
    (tmp_path / "7.0/n1.json").symlink_to("gone")
    assert step_traces.read(str(tmp_path), "7.0") == []
    assert step_traces.content(str(tmp_path / "7.0/n2.json")) == ""


def test_a_file_that_is_nested_without_end_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "7.0").mkdir()
    (tmp_path / "7.0/n1.json").write_text("[" * 200_000)
    assert step_traces.read(str(tmp_path), "7.0") == []
