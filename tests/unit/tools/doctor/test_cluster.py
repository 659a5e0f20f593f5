"""Merging of many nodes' answers into readable lines."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.site.model import SiteConfig
from container_engine.tools.doctor import site
from container_engine.tools.doctor.cluster import (
    Answer,
    ask,
    differing,
    fold,
    groups,
    understood,
    unlike,
)
from container_engine.tools.doctor.finding import State, failed, ok, warning

# srun of a cluster whose second partition is full and whose n5 does not answer
SRUN = """
case "$*" in
    *--partition=full*) exit "$SLURM_EXIT_IMMEDIATE" ;;
    *--nodelist=n5*) echo 'srun: error: Application launch failed' >&2; exit 1 ;;
esac
now=$(date +%s)
for node in n1 n2; do echo "[\\"$node\\", $now, \\"kernel\\", \\"ok\\", \\"6.1.0\\", null]"; done
"""
SINFO = """
cat <<END
n1 idle small
n1 idle all*
n2 idle all*
n3 alloc full
n4 mix- full
n5 mix all*
n6 drain all*
n7 drain all*
END
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Callable[[str, str], dict[str, str]]:
    """Return a function that returns an environment with these scripts as Slurm's commands."""

    def make(sinfo: str, srun: str) -> dict[str, str]:
        for name, text in (("sinfo", sinfo), ("srun", srun)):
            script = tmp_path / name
            script.write_text(f"#!/bin/sh\n{text}")
            script.chmod(0o755)
        return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    return make


def test_equal_findings_are_one_with_all_their_nodes_and_the_worst_come_last() -> None:
    old = warning("podman", "4.0.0: older than all that was tested", "upgrade")
    mode = failed("/dev/fuse", "mode 0600", "chmod")
    fine = ok("kernel", "6.1.0")
    folded = fold([Answer("n2", (fine, mode)), Answer("n1", (mode, old)), Answer("n3", (fine,))])
    assert folded == [(fine, ("n2", "n3")), (old, ("n1",)), (mode, ("n1", "n2"))]


def test_versions_that_differ_between_nodes_are_shown_and_other_differences_are_not() -> None:
    took = [ok("a container", f"starts and ends in {n} ms") for n in range(3)]
    crun = ok("crun", "1.8.1")
    old, new = ok("podman", "4.3.1"), ok("podman", "5.4.2")
    answers = [Answer(f"n{n}", (crun, new if n else old, took[n])) for n in range(3)]
    assert differing(fold(answers)) == [(old, ("n0",)), (new, ("n1", "n2"))]


def _answer(node: str, **settings: object) -> Answer:
    config = SiteConfig.of(settings)
    rules = ok("rules", site.hash_of_rules(config))
    return Answer(node, (ok("configuration", site.hash_of_settings(config)), rules))


def test_a_configuration_that_differs_between_nodes_is_a_warning() -> None:
    answers = [_answer("n1"), _answer("n2", start_timeout_s=7), _answer("n3", start_timeout_s=7)]
    none = answers[0].findings[1]
    assert [(entry.finding.check, entry.nodes) for entry in unlike(fold(answers), none)] == [
        ("configuration", ("n1",)),
        ("configuration", ("n2", "n3")),
    ]
    assert unlike(fold(answers[1:]), none) == []


def test_rules_that_nodes_do_not_have_are_a_warning_even_if_all_nodes_agree() -> None:
    rule = {"policy": {"site_images_only": True}, "image_stores": ["/apps/images"]}
    here = _answer("here", **rule).findings[1]
    nodes = [_answer("n1"), _answer("n2")]
    (found,) = unlike(fold(nodes), here)
    assert found.nodes == ("n1", "n2")
    assert found.finding.message.startswith(
        "none for images and mounts; where you submit: for images and mounts, content "
    )
    assert unlike(fold([_answer("n1", **rule)]), here) == []


def test_nodes_are_asked_by_partition_and_state_and_those_that_are_not_up_are_one_line(
    slurm: Callable[[str, str], dict[str, str]],
) -> None:
    asked, absent = groups(slurm(SINFO, SRUN))
    assert [(group.options[0], *group.names) for group in asked] == [
        ("--partition=all", "n1", "n2"),
        ("--partition=full", "n3"),
        ("--partition=full", "n4"),
        ("--partition=all", "n5"),
    ]
    assert [(entry.nodes, entry.finding.message) for entry in absent] == [
        (("n6", "n7"), "drain: not asked")
    ]


def test_an_idle_node_for_which_a_job_is_planned_is_up(
    slurm: Callable[[str, str], dict[str, str]],
) -> None:
    asked, _others = groups(slurm("echo n1 plnd all*", SRUN))
    assert asked == [(("n1",), ("--partition=all", "--immediate=30", "--mem=500M"))]


@pytest.mark.parametrize(
    ("state", "told", "hint"),
    [
        ("maint", "no node takes jobs: 2 maint", "--reservation=NAME"),
        ("down*", "no node takes jobs: 2 down*", "sinfo -R says why"),
    ],
)
def test_nodes_of_which_none_takes_jobs_are_named_by_their_states(
    slurm: Callable[[str, str], dict[str, str]], state: str, told: str, hint: str
) -> None:
    env = slurm(f"echo n1 {state} all*; echo n2 {state} all*; echo n2 {state} small", SRUN)
    with pytest.raises(UserError) as raised:
        groups(env)
    assert raised.value.message == told
    assert hint in (raised.value.hint or "")


def test_full_nodes_and_silent_ones_take_nobody_elses_answer(
    slurm: Callable[[str, str], dict[str, str]],
) -> None:
    env = slurm(SINFO, SRUN)
    answers, busy = ask(groups(env)[0], "ce", (), env)
    states = {answer.node: answer.findings[-1].state for answer in answers}
    assert states == {"n1": State.OK, "n2": State.OK, "n5": State.FAILED}
    assert answers[-1].findings[0].message == ("no answer: srun: error: Application launch failed")
    assert [(entry.nodes, entry.finding.state) for entry in busy] == [
        (("n3",), State.WARNING),
        (("n4",), State.WARNING),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "[info] module loaded",
        "[1, 2]",
        '["n1", "soon", "kernel", "ok", "6.1.0", null]',
        '["n1", 1000, "kernel", "fine", "6.1.0", null]',
        '["n1", 1000, "kernel", "ok", 6, null]',
        '[["n1"], 1000, "kernel", "ok", "6.1.0", null]',
        "[" * 100_000,
    ],
)
def test_output_of_other_programs_is_no_answer(line: str) -> None:
    lines = [line, json.dumps(["n1", 1000, *ok("kernel", "6.1.0")])]
    (answer,) = understood(lines, asked=1000, heard=1000)
    assert answer.findings == (ok("kernel", "6.1.0"),)


@pytest.mark.parametrize(("when", "apart"), [(1000, None), (1090, None), (960, "40"), (1140, "50")])
def test_a_clock_is_wrong_by_what_no_slow_answer_explains(when: int, apart: str | None) -> None:
    """All answers arrive with that of the slowest node, here 90 seconds after the question."""
    lines = [json.dumps(["n1", when, *ok("kernel", "6.1.0")]), "said by a login script"]
    (answer,) = understood(lines, asked=1000, heard=1090)
    clocks = [finding.message for finding in answer.findings if finding.check == "clock"]
    assert clocks == ([] if apart is None else [f"differs from this host's by at least {apart} s"])
