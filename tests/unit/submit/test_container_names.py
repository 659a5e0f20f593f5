"""Records of what a job's named containers are made from, for steps that give a name alone."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.compat.pyxis_options import PyxisOptions as Options
from container_engine.site.model import SiteConfig
from container_engine.submit.container_names import completed, record

NAMED = "--container-name=a"
CWD = "/work/dir"


def env(home: Path, job: str = "7") -> dict[str, str]:
    return {"HOME": str(home), "SLURM_JOB_ID": job}


@pytest.mark.parametrize(
    ("environment", "words", "expected", "more"),
    [
        ("demo", [NAMED], "demo", []),
        ("./own.toml", [NAMED], f"{CWD}/own.toml", []),
        *((name, [NAMED], name, []) for name in ("team/x", "~/x.toml", "${HOME}/x.toml")),
        (None, [NAMED, "--container-image=alpine"], None, ["--container-image=alpine"]),
        ("demo", ["--container-image=./x.sqsh", NAMED], "demo", [f"{CWD}/x.sqsh"]),
    ],
)
def test_a_name_alone_means_what_an_earlier_step_said(
    tmp_path: Path, environment: str | None, words: list[str], expected: str | None, more: list[str]
) -> None:
    record("a", environment, Options(words), env(tmp_path), CWD)
    found = completed(Options([NAMED + ":exec"]), env(tmp_path))
    assert found.environment == expected
    assert [word.removeprefix("--container-image=") for word in found.options.words[1:]] == [
        word.removeprefix("--container-image=") for word in more
    ]
    assert found.consulted == (f"{tmp_path}/.local/state/container-engine/names/7/a",)


def test_another_job_has_another_container(tmp_path: Path) -> None:
    record("a", "demo", Options([NAMED]), env(tmp_path), CWD)
    found = completed(Options([NAMED]), env(tmp_path, "8"))
    assert (found.environment, list(found.options.words)) == (None, [NAMED])
    # a cached plan must not outlive the record's absence
    assert found.consulted == (f"{tmp_path}/.local/state/container-engine/names/8/a",)


def test_a_requeued_job_has_no_container_of_an_earlier_run(tmp_path: Path) -> None:
    again = env(tmp_path) | {"SLURM_RESTART_COUNT": "1"}
    record("a", "demo", Options([NAMED]), env(tmp_path), CWD)
    assert completed(Options([NAMED]), again).environment is None
    record("a", "demo", Options([NAMED]), again, CWD)
    assert completed(Options([NAMED]), again).environment == "demo"
    # ce save JOB.NAME asks from outside of the job
    assert completed(Options([NAMED]), env(tmp_path)).environment == "demo"


def test_outside_of_a_job_the_newest_record_of_the_name_counts(tmp_path: Path) -> None:
    record("a", "old", Options([NAMED]), env(tmp_path, "7"), CWD)
    record("a", "new", Options([NAMED]), env(tmp_path, "8"), CWD)
    place = tmp_path / ".local/state/container-engine/names"
    old = (place / "7/a").stat().st_mtime - 10
    os.utime(place / "7/a", (old, old))
    found = completed(Options([NAMED]), {"HOME": str(tmp_path)})
    assert (found.environment, list(found.options.words)) == ("new", [NAMED, f"{NAMED}:exec"])


def test_a_step_with_an_image_of_its_own_needs_no_record(tmp_path: Path) -> None:
    record("a", "demo", Options([NAMED]), env(tmp_path), CWD)
    options = Options([NAMED, "--container-image=alpine"])
    assert completed(options, env(tmp_path)) == (None, options, ())


@pytest.mark.parametrize("text", ["", "[]", "{", '{"environment": "x"}'])
def test_a_damaged_record_is_no_record(tmp_path: Path, text: str) -> None:
    record("a", "demo", Options([NAMED]), env(tmp_path), CWD)
    (tmp_path / ".local/state/container-engine/names/7/a").write_text(text)
    assert completed(Options([NAMED]), env(tmp_path)).environment is None


def test_a_step_without_a_name_leaves_no_record(tmp_path: Path) -> None:
    record("", "demo", Options([]), env(tmp_path), CWD)
    record("a", None, Options([NAMED]), env(tmp_path), CWD)
    assert not (tmp_path / ".local").exists()


def test_the_same_is_not_written_again_and_a_lost_record_is(tmp_path: Path) -> None:
    (path,) = record("a", "demo", Options([NAMED]), env(tmp_path), CWD)
    first = os.stat(path).st_ino
    assert record("a", "demo", Options([NAMED]), env(tmp_path), CWD) == (path,)
    assert os.stat(path).st_ino == first
    os.unlink(path)
    assert record("a", "demo", Options([NAMED]), env(tmp_path), CWD) == (path,)
    assert completed(Options([NAMED]), env(tmp_path)).environment == "demo"


def _trace(directory: Path, step: str, image: str) -> Path:
    place = directory / step
    place.mkdir(parents=True, mode=0o700)
    (place / "n1.json").write_text(json.dumps({"version": 1, "image": {"path": image}}) + "\n")
    return place


@pytest.mark.parametrize("trace_dir", ["~/traces", "/common"])
def test_a_step_that_runs_is_named_by_its_number(tmp_path: Path, trace_dir: str) -> None:
    traces = SiteConfig(trace_dir=trace_dir.replace("/common", f"{tmp_path}/traces"))
    _trace(tmp_path / "traces", "7.0", "/x.sqsh")
    found = completed(
        Options(["--container-name=7.0"]), env(tmp_path), traces.places.traces_of(str(tmp_path))
    )
    assert list(found.options.words)[1:] == [
        "--container-image=/x.sqsh",
        "--container-name=7.0:exec",
    ]
    assert found.consulted == (f"{tmp_path}/traces/7.0",)


def test_only_the_users_own_trace_of_a_step_counts(
    tmp_path: Path, as_nobody: Callable[[Path], None]
) -> None:
    """In a directory of all users, another user can leave a trace for a future job."""
    as_nobody(_trace(tmp_path, "7.0", "/x.sqsh"))
    _trace(tmp_path, "7.1", "/x.sqsh").chmod(0o777)
    (tmp_path / "7.2").symlink_to(_trace(tmp_path / "own", "7.2", "/x.sqsh"))
    for number in range(3):
        words = [f"--container-name=7.{number}"]
        found = completed(Options(words), env(tmp_path), str(tmp_path))
        assert list(found.options.words) == words
