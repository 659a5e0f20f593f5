"""The records of a cluster's starts: each start once, bounded, with nothing of a user."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from container_engine.cli.main import main
from container_engine.tools import start_records, step_traces
from container_engine.tools.doctor.host import look_at_starts
from tests.unit.tools.test_step_traces import ended, facts, write

SECOND = 1_000_000_000
Capture = pytest.CaptureFixture[str]


def shifted(document: Any, seconds: float) -> Any:  # noqa: ANN401  # JSON
    """Return a document of a trace with all its times later."""
    if isinstance(document, list):
        return [shifted(one, seconds) for one in document]
    if not isinstance(document, dict):
        return document
    times = ("begin", "end", "first_join", "last_join")
    return {
        key: value + round(seconds * SECOND) if key in times else shifted(value, seconds)
        for key, value in document.items()
    }


def reads(count: int, *, shared: bool) -> dict[str, Any]:
    names = ("bytes", "reads", "waited_ns", "requests", "lookups", "hits", "misses", "size")
    figures = dict.fromkeys(names, count)
    return {"image_reads": [{"path": "/store/debian.sqsh", "shared": shared, **figures}]}


class Site:
    """A site with traces of all users, whose clock says how long ago the first start was."""

    def __init__(self, place: Path) -> None:
        self.traces, self.file = place / "traces", place / "starts.json"
        self.config = place / "config.toml"
        self.config.write_text(f'trace_dir = "{self.traces}"\nstarts_file = "{self.file}"\n')
        self.traces.mkdir()
        self.begin = time.time() - 3000 - 1_700_000_000

    def start(self, step: str, node: str, create_ms: int, after: float = 0, **more: object) -> None:
        write(self.traces, step, node, shifted(facts(create_ms, **more), self.begin + after))

    def end(self, step: str, node: str, after: float, **more: object) -> None:
        path = self.traces / step / f"{node}.json"
        line = {**shifted(ended(60, 70), self.begin + after), **more}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def ce(self, *words: str) -> int:
        return main(["--site", str(self.config), *words])

    def count(self, at: float) -> dict[str, Any]:
        """Count as `ce metrics` does at this time after the first start."""
        records = start_records.load(str(self.file))
        start_records.Update(records, 1_700_000_000 + self.begin + at).add(str(self.traces))
        start_records.write(str(self.file), records)
        return records


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_each_start_and_each_read_is_counted_once(site: Site) -> None:
    site.start("1.0", "n1", 50)
    site.start("1.0", "n2", 100_000)
    assert site.count(90)["starts"] == {"ok": 1, "failed": 0}
    assert site.count(95)["starts"] == {"ok": 1, "failed": 0}
    records = site.count(170)
    assert records["starts"] == {"ok": 2, "failed": 0}
    assert records["running"] == ["1.0"]
    site.end("1.0", "n1", 200, **reads(5, shared=False))
    # no directory says that a line was appended to a file in it
    os.utime(site.traces / "1.0", (1, 1))
    assert site.count(270)["reads"] == {"bytes": 5, "reads": 5, "waited_ns": 5}
    site.end("1.0", "n2", 300, **reads(7, shared=False))
    records = site.count(1000)
    assert records["reads"] == {"bytes": 12, "reads": 12, "waited_ns": 12}
    assert (records["running"], records["starts"]["ok"]) == ([], 2)
    assert site.count(2000)["phases"] == records["phases"]
    create = records["phases"]["create"]
    assert (sum(create[:-1]), create[-1]) == (2, pytest.approx(100.05))


def test_what_steps_of_a_job_share_is_counted_once(site: Site) -> None:
    for number, count in enumerate((5, 8)):
        site.start(f"1.{number}", "n1", 50, 100 * number)
        site.end(f"1.{number}", "n1", 100 * number + 1, **reads(count, shared=True))
        assert site.count(100 * number + 70)["reads"]["bytes"] == count


def test_a_failed_start_and_a_joined_container_do_not_change_the_median(site: Site) -> None:
    site.start("1.0", "n1", 50)
    site.start("1.1", "n1", 4000, error="no mount")
    site.start("1.2", "n1", 50)
    path = site.traces / "1.2/n1.json"
    path.write_text(path.read_text().replace('"create"', '"answer"'))
    records = site.count(100)
    assert records["starts"] == {"ok": 2, "failed": 1}
    [[total, *samples]] = records["images"].values()
    assert (total, samples) == (1, [0.07])


def many(site: Site) -> None:
    """Let an image start 12 times in 70 ms, and then once more, slowly on n7."""
    for number in range(12):
        site.start(f"{number}.0", "n1", 50, number)
    site.count(100)
    for number in range(5):
        site.start(f"9{number}.0", "n7", 430, 100 + number)
    site.start("99.0", "n6", 50, 110)
    site.start("99.0", "n7", 430, 110)


def test_a_slow_node_is_named_with_the_median_of_its_image(site: Site, capsys: Capture) -> None:
    many(site)
    assert site.ce("trace", "99") == 0
    told = "slow: n7 started in 6.4 times the median of this image (70.0 ms over 12 starts)"
    said = capsys.readouterr().out
    assert told in said
    assert "n6 started" not in said
    assert site.ce("trace", "99", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["usual"] == {"median": 0.07, "starts": 12}
    site.file.write_text("{}")
    assert site.ce("trace", "99") == 0
    out, err = capsys.readouterr()
    assert "slow:" not in out
    assert err == f"ce: {site.file}: damaged, or written by another version\n"
    site.file.unlink()
    assert site.ce("trace", "99", "--json") == 0
    assert json.loads(capsys.readouterr().out)["usual"] is None


def test_the_doctor_of_a_slow_node_says_so(site: Site) -> None:
    many(site)
    records = site.count(1000)
    assert start_records.slow_nodes(records) == ["n7"]
    [slow] = look_at_starts(str(site.file), {"SLURMD_NODENAME": "n7"})
    assert (slow.state, slow.message) == (
        "warning",
        "n7 starts in 6.4 times the median of the images (6 starts)",
    )
    assert list(look_at_starts(str(site.file), {"SLURMD_NODENAME": "n6"})) == []
    assert list(look_at_starts("", {})) == []


def test_the_file_is_bounded_and_has_nothing_of_a_user(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_records, "_MOST", dict.fromkeys(start_records._MOST, 3))
    for number in range(400):
        one = {"name": "secret", "path": f"/home/alice/{number // 100}.sqsh", "digest": ""}
        step, node = f"{1000 + number}.0", f"n{number // 60}"
        site.start(step, node, 50, number / 10, image=one)
    records = site.count(1000)
    assert [len(records[name]) for name in ("images", "nodes", "running")] == [3, 3, 3]
    assert max(map(len, records["nodes"].values())) == 10
    text = site.file.read_text()
    for word in ("alice", "secret", "torch", "TOKEN", "/home"):
        assert word not in text
    assert site.file.stat().st_mode & 0o777 == 0o644


def test_the_verb_writes_the_file_and_says_what_is_missing(site: Site, capsys: Capture) -> None:
    site.start("1.0", "n1", 50)
    assert site.ce("metrics") == 0
    assert capsys.readouterr().out == f"{site.file}: 1 starts, 0 failed, 1 images, 0 nodes\n"
    assert site.ce("metrics", "--images=51") == 1
    site.file.write_text("{}")
    assert site.ce("metrics") == 1
    assert "damaged, or written by another version" in capsys.readouterr().err
    site.config.write_text(f'starts_file = "{site.file}"\n')
    assert site.ce("metrics") == 1
    assert "this site keeps traces in the users' homes" in capsys.readouterr().err
    site.file.unlink()
    assert site.ce("metrics", f"--traces={site.traces}") == 0
    site.config.write_text("")
    assert site.ce("metrics") == 1
    assert "keeps no records of starts" in capsys.readouterr().err


def test_traces_that_users_made_up_change_little(site: Site) -> None:
    site.start("1.0", "n1", 50)
    site.start("2.0", "$(reboot)", 10_000_000_000)
    phases = [{"name": "x" * 1000, "begin": 1, "end": 2}]
    write(site.traces, "3.0", "n1", {**facts(50), "phases": phases})
    records = site.count(1000)
    assert set(records["phases"]) <= set(step_traces.PHASES)
    assert records["nodes"] == {}
    [[total, *samples]] = records["images"].values()
    assert (total, samples) == (1, [0.07])
