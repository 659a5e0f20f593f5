"""Traces written by a launch, which cannot disturb the launch."""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container_engine.base.secrecy import TOKENS, Secrecy
from container_engine.node.node_plan import NodePlan, Secrets
from container_engine.node.report import messages, trace
from tests.unit.node.plans import plan

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


def test_a_hook_that_had_nothing_to_do_in_the_step_is_not_in_its_trace(tmp_path: Path) -> None:
    hook = {"release": "1", "reason": "automatic"}
    hooks = [
        {**hook, "name": "pmix", "automatic_when": ["CE_PMIX_DIR"]},
        {**hook, "name": "pmi2", "automatic_when": ["SLURM_JOB_ID=1*"]},
    ]
    fd = trace.open_file(str(tmp_path), NODE)
    trace.write(fd, plan(hooks=hooks), NODE, marks())
    os.close(fd)
    [record] = written(tmp_path)
    assert record["hooks"] == [{**hook, "name": "pmi2"}]


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


@pytest.mark.parametrize("creator", ["crun", "podman"])
def test_hooks_have_a_phase_of_their_own_before_the_creation(creator: str) -> None:
    made = marks()
    made.guard = f"session 1\nmore 6\nroot-bind 7\n{creator} 8\ncontainer 9\nready 10\n"
    names = [phase["name"] for phase in made.phases()]
    assert names[1:5] == ["mount", "hooks", "create", "init"]


@pytest.mark.parametrize("directory", ["", "relative", "/dev/null/x", "/proc/nowhere"])
def test_a_place_that_cannot_be_written_costs_the_trace_and_nothing_else(directory: str) -> None:
    fd = trace.open_file(directory, NODE)
    assert fd == -1
    trace.write(fd, plan(), NODE, marks())


def test_of_all_nodes_only_the_first_says_the_same_thing(tmp_path: Path) -> None:
    first = trace.open_file(str(tmp_path), NODE)
    second = trace.open_file(str(tmp_path), {**NODE, "SLURM_NODEID": "1"})
    assert messages.claim_message(trace.directory_of(first), NODE, "no such image")
    assert not messages.claim_message(trace.directory_of(second), NODE, "no such image")
    assert messages.claim_message(trace.directory_of(second), NODE, "something else")
    # The next srun with the same numbers, after a requeue.
    assert messages.claim_message(
        trace.directory_of(second), {**NODE, "SLURM_CE_PLANNED": "5 6"}, "no such image"
    )
    os.close(first)
    os.close(second)


def test_nodes_without_a_common_place_all_speak() -> None:
    assert messages.claim_message(trace.directory_of(-1), NODE, "no such image")
    assert messages.claim_message(trace.directory_of(-1), NODE, "no such image")


def test_a_full_disk_costs_the_trace_and_nothing_else() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        trace.write(full.fileno(), plan(), NODE, marks())


def test_a_link_in_the_place_of_a_trace_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "12.3").mkdir()
    target = tmp_path / "precious"
    target.write_text("keep")
    (tmp_path / "12.3/n1.json").symlink_to(target)
    os.close(trace.open_file(str(tmp_path), NODE))
    assert target.read_text() == "keep"
    assert not (tmp_path / "12.3/n1.json").is_symlink()


def _steps(where: Path, numbers: Iterable[int]) -> None:
    """Make directories of steps, each a minute younger than the one before."""
    for age, number in enumerate(numbers):
        (where / f"{number}.0").mkdir()
        (where / f"{number}.0/n1.json").write_text("{}")
        os.utime(where / f"{number}.0", (60 * age, 60 * age))


def test_the_oldest_steps_are_forgotten_and_foreign_files_kept(tmp_path: Path) -> None:
    _steps(tmp_path, range(trace._KEPT + 5))
    (tmp_path / "notes").mkdir()
    trace._forget_old(str(tmp_path / f"{trace._KEPT + 4}.0"), trace._KEPT)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"notes", *(f"{number}.0" for number in range(5, trace._KEPT + 5))}


def test_where_jobs_are_numbered_anew_the_steps_of_before_are_forgotten(tmp_path: Path) -> None:
    """The marks of printed messages are in the current step's directory."""
    _steps(tmp_path, [*range(1000, 1001 + trace._KEPT), 1, 2])
    os.utime(tmp_path / "1.0", (0, 0))
    trace._forget_old(str(tmp_path / "1.0"), trace._KEPT)
    left = {path.name for path in tmp_path.iterdir()}
    assert len(left) == trace._KEPT
    assert {"1.0", "2.0"} <= left
    assert left.isdisjoint({"1000.0", "1001.0", "1002.0"})


def test_a_step_with_the_number_of_an_old_one_is_as_young_as_it_is(tmp_path: Path) -> None:
    os.close(trace.open_file(str(tmp_path), NODE))
    os.utime(tmp_path / "12.3", (0, 0))
    os.close(trace.open_file(str(tmp_path), NODE))
    assert (tmp_path / "12.3").stat().st_mtime > 1_600_000_000


def test_of_steps_on_thousands_of_nodes_the_home_keeps_fewer(tmp_path: Path) -> None:
    _steps(tmp_path, range(100, 130))
    for nodes, kept in ((2, 31), (1000, 20), (10_000, 10)):
        node = {**NODE, "SLURM_NODEID": "0", "SLURM_STEP_NUM_NODES": str(nodes)}
        fd = trace.open_file(str(tmp_path), node)
        trace.write(fd, plan(), node, marks())
        os.close(fd)
        assert len(list(tmp_path.iterdir())) == kept


def test_a_long_list_of_nodes_is_in_the_first_trace_alone(tmp_path: Path) -> None:
    nodes = f"n[{','.join(map(str, range(1, 2000, 2)))}]"
    for number in ("0", "1"):
        node = {**NODE, "SLURM_NODEID": number, "SLURM_STEP_NODELIST": nodes}
        fd = trace.open_file(str(tmp_path), node)
        trace.write(fd, plan(), node, marks())
        os.close(fd)
    first, second = (json.loads(path.read_text()) for path in sorted(tmp_path.glob("12.3/*")))
    assert (first["nodes"], second["nodes"]) == (nodes, "")


def _planted(tmp_path: Path) -> Path:
    """Make a directory of a user's, to which an attacker links from where users' traces are."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("keep")
    return precious


def test_a_link_in_the_place_of_a_steps_directory_is_not_followed(tmp_path: Path) -> None:
    precious = _planted(tmp_path)
    (tmp_path / "12.3").symlink_to(precious)
    assert trace.open_file(str(tmp_path), NODE) == -1
    assert [path.name for path in precious.iterdir()] == ["thesis"]


def test_a_directory_that_others_may_write_gets_no_trace(tmp_path: Path) -> None:
    (tmp_path / "12.3").mkdir()
    (tmp_path / "12.3").chmod(0o777)
    assert trace.open_file(str(tmp_path), NODE) == -1
    assert list((tmp_path / "12.3").iterdir()) == []


def test_old_steps_that_are_links_or_somebody_elses_are_left_alone(tmp_path: Path) -> None:
    precious = _planted(tmp_path)
    (tmp_path / "0.0").symlink_to(precious)
    (tmp_path / "1.0").mkdir()
    (tmp_path / "1.0/n1.json").write_text("{}")
    if os.geteuid() == 0:
        os.chown(tmp_path / "1.0", 12345, 12345)
    _steps(tmp_path, range(2, trace._KEPT + 5))
    trace._forget_old(str(tmp_path / "5.0"), trace._KEPT)
    assert (precious / "thesis").read_text() == "keep"
    assert (tmp_path / "0.0").is_symlink()
    assert (tmp_path / "1.0/n1.json").exists() == (os.geteuid() == 0)
    assert not (tmp_path / "2.0").exists()


@given(text=st.from_regex(TOKENS), before=st.text())
def test_a_token_is_hidden_whatever_stands_around_it(text: str, before: str) -> None:
    whole = f"{before} {text}"
    assert messages.concealed(whole, Secrets(), NODE) == Secrecy(()).text(whole)


@pytest.mark.parametrize("word", ["KEY", "*APIKEY", "API?KEY*", "A[PQ]I*", "key"])
@pytest.mark.parametrize("name", ["MY_KEY", "MYAPIKEY", "API_KEY_OF_MINE", "API", "OTHER"])
def test_a_value_is_hidden_where_a_pattern_fits_its_variable(word: str, name: str) -> None:
    known = Secrecy((word,)).knowing([(name, "of the host")])
    said = messages.concealed("it is of the host", Secrets(patterns=(word,)), {name: "of the host"})
    assert said == known.text("it is of the host")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "A_TOKEN=x1",
            "see https://me:word@host",
            "nothing of the kind",
            "x --token x1",
            "token: x1",
        ),
        *("authorization: Basic x1", "BEARER x1234567890123456", "--creds me:x1", "-u me:x1"),
        *("-U me:x1", "--proxy-user me:x1", "login -p x1", "robot$a+b:x1", '{"auth": "x1"}'),
        *("--auth-token x1", "Auth-Token: x1"),
    ],
)
def test_settings_and_logins_are_hidden_as_everywhere(text: str) -> None:
    words = ("TOKEN",)
    assert messages.concealed(text, Secrets(patterns=words), NODE) == Secrecy(words).text(text)


def test_neither_errors_nor_mounts_tell_a_secret(tmp_path: Path) -> None:
    node = {**NODE, "MY_TOKEN": "of the host"}
    entries = [{"name": "HF_KEY", "value": "of the file", "from": "e:1"}]
    mounts = [
        {"kind": "bind", "source": "/of the host", "target": "/x", "options": [], "from": "e:1"}
    ]
    the_plan = plan(env=entries, mounts=mounts, secret_variables=["TOKEN", "KEY"])
    text = "startup[0]: 'login of the file; export A_TOKEN=literal': exit code 1: of the host"
    said = messages.concealed(text, the_plan.secrets, node)
    assert said == ("startup[0]: 'login (hidden); export A_TOKEN=(hidden)': exit code 1: (hidden)")
    fd = trace.open_file(str(tmp_path), node)
    trace.write(fd, the_plan, node, marks(), said)
    os.close(fd)
    [record] = written(tmp_path)
    assert "of the host" not in json.dumps(record)
    assert record["mounts"][0]["source"] == "/(hidden)"  # type: ignore[index]


@pytest.mark.parametrize("message", ["@: no /data on @", "/home/run2/x: 17 bytes", "alpha2beta"])
def test_two_nodes_that_say_the_same_are_alike(message: str) -> None:
    """A name within another word, such as a directory's, is not the node's."""
    said = {
        messages.alike(message.replace("@", name), {"SLURMD_NODENAME": name})
        for name in ("n1", "n2", "alpha", "beta", "nid001234")
    }
    assert len(said) == 1


def test_nodes_that_say_different_things_are_not_alike() -> None:
    node = {"SLURMD_NODENAME": "n1"}
    assert messages.alike("no /a", node) != messages.alike("no /b", node)


def tracking(tmp_path: Path, script: str) -> NodePlan:
    """Return a plan whose tracking program is this shell script."""
    program = tmp_path / "track"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return plan(tracking_tool=[str(program), "an argument"])


def test_the_first_node_gives_its_record_to_the_sites_program(tmp_path: Path) -> None:
    record = tmp_path / "record"
    the_plan = tracking(tmp_path, f'{{ echo "$1"; env; cat; }} >{record}')
    secret = {"MY_TOKEN": "s3cret", "LD_PRELOAD": "/x.so", "SLURM_JOB_NAME": "of-the-job"}
    trace.write(-1, the_plan, {**NODE, **secret, "SLURM_NODEID": "1"}, marks())
    assert not record.exists()
    trace.write(-1, the_plan, {**NODE, **secret, "SLURM_NODEID": "0"}, marks(), "why")
    first, *variables, document = record.read_text().splitlines()
    assert first == "an argument"
    assert "SLURM_JOB_NAME=of-the-job" in variables
    assert not [line for line in variables if "s3cret" in line or "x.so" in line]
    assert json.loads(document)["error"] == "why"
    assert json.loads(document)["job"] == NODE["SLURM_JOB_ID"]


@pytest.mark.parametrize("script", ["exit 3", "exec sleep 30", "exec <&-; exit 0"])
def test_a_tracking_program_that_fails_or_hangs_costs_little_time(
    tmp_path: Path, script: str
) -> None:
    begin = time.monotonic()
    trace.write(-1, tracking(tmp_path, script), {**NODE, "SLURM_NODEID": "0"}, marks())
    assert time.monotonic() - begin < 20


def test_a_tracking_program_that_is_missing_costs_nothing(tmp_path: Path) -> None:
    the_plan = plan(tracking_tool=[str(tmp_path / "none")])
    trace.write(-1, the_plan, {**NODE, "SLURM_NODEID": "0"}, marks())
