"""Hooks are repeated without Python only where nothing but the files of the node decides them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from container_engine.base.answers import Variables
from container_engine.node.container.description import NodeMount, Paths
from container_engine.node.container.edits import HookEdits, Repeatable
from container_engine.node.hooks.run import repeatable
from tests.unit.node.hooks.hooks import device, hook, mount
from tests.unit.node.plans import image, plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def _judged(
    *hooks: Mapping[str, Any],
    edits: HookEdits | None = None,
    node: Mapping[str, str] | None = None,
    edf: Mapping[str, str | None] | None = None,
    of_image: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Repeatable | None:
    a_plan = plan(hooks=hooks, image=image(**(variables or {})))
    return repeatable(a_plan.hooks, node or {}, edits or _edits(), edf or {}, of_image)


def _edits(**values: object) -> HookEdits:
    edits = HookEdits(Paths("/s", "/libexec"))
    for name, value in values.items():
        assert hasattr(edits, name)
        setattr(edits, name, value)
    return edits


def test_hooks_of_data_depend_on_what_their_patterns_looked_at(tmp_path: Path) -> None:
    for name in ("dev", "mnt", "lib", "asked"):
        (tmp_path / name).mkdir()
    check = {"kind": "device", "subject": f"{tmp_path}/asked/c*"}
    one = hook(
        devices=[device(f"{tmp_path}/dev/d*")],
        mounts=[mount(f"{tmp_path}/mnt/m*", "/m")],
        libraries=[{"files": [f"{tmp_path}/lib/l*"]}],
        checks=[check],
    )
    found = _judged(one, of_image=["f/of/the/image"])
    assert found is not None
    for name in ("dev", "mnt", "lib", "asked"):
        assert f"f{tmp_path}/{name}" in found.asked
    assert "f/of/the/image" in found.asked


@pytest.mark.parametrize(
    "edits",
    [
        {"services": [{}]},
        {"oci_hooks": [{}]},
        {"asked": {"f/proc/devices": None}},
        {"mounts": [NodeMount("bind", "/usr", "/sys/x", ())]},
        {"operations": [("note", [])]},
        {"warnings": ["w"]},
    ],
    ids=lambda edits: next(iter(edits)),
)
def test_what_is_more_than_files_and_variables_is_pythons(edits: Mapping[str, object]) -> None:
    assert _judged(hook(), edits=_edits()) is not None
    assert _judged(hook(), edits=_edits(**edits)) is None


@pytest.mark.parametrize(
    "of",
    [
        {"code": "hook.py"},
        {"automatic_when": ["A"]},
        {"checks": [{"kind": "group", "subject": "g"}]},
        {"checks": [{"kind": "mpi", "subject": "m"}]},
        {"env": {"V": "{node.job}"}},
        {"mounts": [mount("/run/{node.uid}", "/r")]},
        {"mounts": [mount("/sys/class/n*", "/n")]},
        {"devices": [device("/proc/self/x")]},
    ],
    ids=lambda of: next(iter(of)),
)
def test_a_hook_that_depends_on_its_step_or_the_kernel_is_pythons(of: Mapping[str, Any]) -> None:
    assert _judged(hook(), hook(**of), node={"A": "1"}) is None


def test_a_hook_that_does_not_apply_is_recorded_with_its_condition() -> None:
    """Its condition is recorded, and the next step is asked for the variable."""
    assert _judged(hook(code="hook.py", automatic_when=["A"])) is not None


@pytest.mark.parametrize(
    ("values", "asked"),
    [
        ({}, {"vV": "-"}),
        ({"node": {"V": "/own"}}, {"vV": "=/own"}),
        # what the image, a hook or the EDF sets does not depend on the step
        ({"node": {"V": "/own"}, "image": {"V": "/i"}}, {}),
        ({"node": {"V": "/own"}, "edf": {"V": "/e"}}, {}),
        ({"node": {"V": "/own"}, "edf": {"V": None}}, {}),
        ({"node": {"V": "/own"}, "hooks": {"V": "/h"}}, {}),
    ],
)
def test_a_variable_that_only_the_step_sets_is_asked_for(
    values: Mapping[str, Mapping[str, str]], asked: Mapping[str, str]
) -> None:
    edits = _edits(prepend={"V": ["/mine"]}, env={**values.get("hooks", {})})
    node = Variables(values.get("node", {}), {})
    edits.settings(values.get("edf", {}), values.get("image", {}), node)
    assert node.asked == asked


def test_a_check_is_asked_again_where_its_file_or_variable_has_changed() -> None:
    checks = [{"kind": "variable", "subject": "V", "file": "/sys/class/x/y=0"}]
    found = _judged(hook(checks=checks))
    assert found is not None
    assert "c/sys/class/x/y" in found.asked


def test_what_devices_depend_on_is_compared() -> None:
    edits = _edits(asked={"d/dev/null": None}, cdi={"a.com/b=c": "h"}, per_task={"A": "B"})
    found = _judged(hook(code="pytorch"), edits=edits)
    assert found is not None
    assert (found.asked, found.port) == (["d/dev/null"], "")


def test_variables_of_hooks_are_named_unless_the_environment_sets_them() -> None:
    edits = _edits(env={"A": "1", "B": "2"}, prepend={"C": ["/c"], "A": ["/a"]})
    found = _judged(hook(), edits=edits, edf={"B": "3"})
    assert found is not None
    assert found.names == ["A", "C"]
