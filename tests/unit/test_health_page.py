"""The health check of the documentation, with stand-ins for Slurm and the engine."""

import re
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/admin/health.md"
FAILED = "failed   crun  not in /usr/bin"


class Node:
    def __init__(self, here: Path) -> None:
        self.here = here
        self.script = here / "ce-health"
        text = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
        text = text.replace("/opt/container-engine/bin/ce", str(here / "ce"))
        self.script.write_text(text.replace("export PATH=", f"export PATH={here}:"))
        self.program("runuser", 'shift 3; exec "$@"')
        self.program("logger", f'echo "$@" >> {here}/logged')

    def program(self, name: str, text: str) -> None:
        (self.here / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.here / name).chmod(0o755)

    def check(self, said: str, code: int, state: str = "IDLE") -> tuple[int, str]:
        """Return the exit code, and what scontrol was asked to change."""
        self.program("ce", f"echo '{said}'\nexit {code}")
        shown = f"NodeName=n1 State={state} Reason=disk swap [bob] State=no" if state else ""
        self.program(
            "scontrol", f'[ $1 = update ] && echo "$@" > {self.here}/asked || echo "{shown}"'
        )
        env = {"SLURMD_NODENAME": "n1"}  # all that slurmd sets
        done = subprocess.run(["/bin/sh", self.script], env=env, check=False)
        asked = self.here / "asked"
        return done.returncode, asked.read_text() if asked.exists() else ""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_node_that_cannot_start_containers_is_drained_with_the_cause(node: Node) -> None:
    assert node.check(f"ok  kernel\n{FAILED}", 1) == (
        1,
        "update nodename=n1 state=drain reason=CE: failed crun not in /usr/bin\n",
    )


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN*", "IDLE+FAIL"])
def test_the_reason_of_a_node_that_is_drained_already_stays(node: Node, state: str) -> None:
    assert node.check(FAILED, 1, state) == (1, "")


def test_a_node_that_slurm_does_not_know_is_in_the_log(node: Node) -> None:
    assert node.check(FAILED, 1, "") == (1, "")
    assert "not drained: scontrol shows no node n1" in (node.here / "logged").read_text()


def test_a_node_without_the_engine_is_drained(node: Node) -> None:
    node.program("ce", "")
    text = node.script.read_text()
    node.script.write_text(text.replace(f"ce={node.here}/ce", f"ce={node.here}/absent"))
    code, asked = node.check("", 0)
    assert (code, "reason=CE: failed installation: no " in asked) == (1, True)


def test_a_node_that_is_well_is_left_alone(node: Node) -> None:
    assert node.check("ok  kernel", 0) == (0, "")


@pytest.mark.parametrize(("said", "code"), [("", 124), ("", 127), ("Traceback", 1), (FAILED, 137)])
def test_a_check_that_could_not_look_drains_nothing(node: Node, said: str, code: int) -> None:
    assert node.check(said, code) == (0, "")
    assert f"not looked: exit code {code}" in (node.here / "logged").read_text()
