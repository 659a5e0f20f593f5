"""Changes by hooks on a node before there is a container: devices, mounts, variables."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from container_engine.base.errors import LaunchError
from container_engine.node.container import environment
from container_engine.node.container.checks import resolved
from container_engine.node.container.description import NodeMount, Paths
from container_engine.node.hooks.run import HooksOnNode
from container_engine.node.report.errors import refuse
from tests.unit.node.hooks.hooks import device, hook, mount
from tests.unit.node.plans import container, image, plan

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from container_engine.node.container.description import Parts

PATHS = Paths("/s", "/libexec")


def on_node(
    *hooks: dict[str, Any],
    parts: Parts | None = None,
    edf: Mapping[str, str | None] | None = None,
    node: Mapping[str, str] | None = None,
    **variables: str,
) -> HooksOnNode:
    the_plan = plan(hooks=list(hooks), image=image(PATH="/bin", **variables))
    here = resolved(the_plan, {}).but(env=edf or {})
    return HooksOnNode(the_plan, here, parts or container(), node or {}, PATHS)


def settings(*hooks: dict[str, Any], **rest: Any) -> dict[str, str | None]:  # noqa: ANN401
    return on_node(*hooks, **rest).settings


# ---- devices ---------------------------------------------------------------------------------


def test_a_device_that_the_node_has_is_given_to_the_container() -> None:
    devices = [device("/dev/nul*"), device("/dev/zero")]
    hooks = on_node(hook(devices=devices), parts=container(devices=("/dev/null",)))
    assert hooks.parts.devices == ["/dev/null", "/dev/zero"]


def test_a_missing_device_is_named_with_its_hook_and_a_remedy() -> None:
    with pytest.raises(LaunchError) as refused:
        on_node(hook(devices=[device("/dev/cxi-none*")]))
    assert str(refused.value) == "hook cxi: device '/dev/cxi-none*' does not exist on this node"
    assert refused.value.see == "hook-file-missing"
    assert 'com.hooks.cxi.enabled = "false"' in (refused.value.hint or "")


def test_a_file_that_is_not_a_device_does_not_count_as_one(tmp_path: Path) -> None:
    (tmp_path / "cxi0").touch()
    with pytest.raises(LaunchError, match="does not exist on this node"):
        on_node(hook(devices=[device(f"{tmp_path}/cxi*")]))


def test_a_device_that_a_hook_and_its_check_lack_is_reported_once() -> None:
    check = {"kind": "device", "severity": "fail", "subject": "/dev/none/uverbs*", "hint": "TCP"}
    with pytest.raises(LaunchError) as refused:
        on_node(hook("ib", devices=[device("/dev/none/*")], checks=[check]))
    assert str(refused.value) == "hook ib: device '/dev/none/*' does not exist on this node"
    assert not refused.value.also


def test_all_that_hooks_lack_is_reported_at_once() -> None:
    check = {"kind": "device", "severity": "fail", "subject": "/dev/cxi-none*", "hint": "use TCP"}
    fabric = hook(
        "fabric",
        devices=[device("/dev/none"), device("/dev/null")],
        mounts=[mount("/no/data")],
        libraries=[{"files": ["/no/liba.so", "/no/libb*"], "optional": False}],
        checks=[check],
    )
    with pytest.raises(LaunchError) as refused:
        on_node(fabric, hook("other", env={"A": "{node.job}"}), hook("well"))
    lines = [str(refused.value), *refused.value.also]
    assert lines[:-1] == [
        "hook fabric: device '/dev/none' does not exist on this node",
        "hook fabric: mount source '/no/data' does not exist on this node",
        "hook fabric: no device '/dev/cxi-none*' on this node (use TCP)",
        "hook fabric: library '/no/liba.so' does not exist on this node",
        "hook fabric: library '/no/libb*' does not exist on this node",
    ]
    assert lines[-1].startswith("hook other: '{node.job}' needs {node.job}")
    assert refused.value.see == "hook-file-missing"
    assert refused.value.hint == (
        "choose nodes that have all of it, ask the administrator, or leave the hooks out:"
        ' com.hooks.fabric.enabled = "false", com.hooks.other.enabled = "false"'
    )


@pytest.mark.parametrize("what", ["file", "field"])
@pytest.mark.parametrize(
    ("switch", "remedy"),
    [
        ("org.b", "choose nodes that have it, ask the administrator, or leave the hook out: org.b"),
        ("", "choose nodes that have it, or ask the administrator"),
    ],
)
def test_the_remedy_leaves_a_hook_out_by_its_own_annotation(
    what: str, switch: str, remedy: str
) -> None:
    parts: dict[str, dict[str, Any]] = {
        "file": {"devices": [device("/dev/none")]},
        "field": {"env": {"A": "{node.job}"}},
    }
    with pytest.raises(LaunchError) as refused:
        on_node(hook("b", switch=switch, **parts[what]))
    off = ' = "false"' if switch else ""
    assert refused.value.hint == f"{remedy}{off}"


def test_all_that_a_hook_of_the_sites_lacks_is_not_to_be_left_out() -> None:
    devices = [device("/dev/none"), device("/dev/no")]
    with pytest.raises(LaunchError) as refused:
        on_node(hook("a", devices=devices), hook("b", switch="", devices=devices))
    assert refused.value.hint == ("choose nodes that have all of it, or ask the administrator")


def test_a_missing_cdi_device_is_reported_with_everything_else() -> None:
    with pytest.raises(LaunchError) as refused:
        on_node(hook(devices=[device("/dev/none")], cdi=["a.org/gpu=0"]))
    assert "'a.org/gpu=0': no CDI device of that name" in refused.value.also[0]


def test_a_cdi_device_of_a_hook_is_reported_with_the_hooks_name() -> None:
    with pytest.raises(LaunchError, match=r"^hook cxi: device 'a\.org/gpu=0': no CDI"):
        on_node(hook(cdi=["a.org/gpu=0"]))


def test_what_the_environment_and_what_hooks_lack_is_one_list_with_both_remedies() -> None:
    unmet = [LaunchError(f"e.toml:2: '/no/{name}'", see="mount-source-missing") for name in "ab"]
    the_plan = plan(hooks=[hook(devices=[device("/dev/none")])], image=image())
    with pytest.raises(LaunchError) as refused:
        HooksOnNode(the_plan, resolved(the_plan, {}), container(), {}, PATHS, unmet)
    assert [str(refused.value), *refused.value.also] == [
        "e.toml:2: '/no/a'",
        "e.toml:2: '/no/b'",
        "hook cxi: device '/dev/none' does not exist on this node",
    ]
    assert refused.value.see == "mount-source-missing"
    assert refused.value.hint == (
        "create it there, or mount a path that exists on every node; choose nodes that"
        ' have it, ask the administrator, or leave the hook out: com.hooks.cxi.enabled = "false"'
    )


def test_a_list_without_end_is_cut_and_says_so() -> None:
    with pytest.raises(LaunchError) as refused:
        refuse([("", LaunchError(f"no {number}", see="device-missing")) for number in range(100)])
    assert len(refused.value.also) == 41
    assert refused.value.also[-1] == "and 59 more"


def test_an_optional_device_may_be_missing() -> None:
    hooks = on_node(hook(devices=[device("/dev/cxi-none*", optional=True)]))
    assert hooks.parts.devices == []


def test_the_check_for_a_device_warns_or_fails_as_the_site_says() -> None:
    check = {"kind": "device", "severity": "warn", "subject": "/dev/cxi-none*", "hint": "use TCP"}
    assert on_node(hook(checks=[check])).warnings == [
        "hook cxi: no device '/dev/cxi-none*' on this node (use TCP)"
    ]
    with pytest.raises(LaunchError, match=r"^hook cxi: no device '/dev/cxi-none\*' on this node"):
        on_node(hook(checks=[{**check, "severity": "fail"}]))
    assert on_node(hook(checks=[{**check, "subject": "/dev/nul?"}])).warnings == []


def test_the_check_for_a_variable_looks_at_the_step() -> None:
    subject = "SLURM_NETWORK=*disable_rdzv_get*"
    check = {"kind": "variable", "severity": "warn", "subject": subject, "hint": "say --network"}
    warned = [f"hook cxi: the step does not have {subject} (say --network)"]
    assert on_node(hook(checks=[check])).warnings == warned
    assert on_node(hook(checks=[check]), node={"SLURM_NETWORK": "job_vni"}).warnings == warned
    node = {"SLURM_NETWORK": "job_vni,disable_rdzv_get"}
    assert on_node(hook(checks=[check]), node=node).warnings == []


@pytest.mark.parametrize(
    ("content", "said"),
    [("0\n", ""), ("1\n", "FILE on this node is 1, not 0"), (None, "the step does not have V")],
)
def test_a_file_of_the_node_decides_in_place_of_a_variable(
    tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / "rdzv_get_en"
    if content is not None:
        file.write_text(content)
    check = {"kind": "variable", "severity": "warn", "subject": "V", "file": f"{file}=0"}
    expected = [f"hook cxi: {said}".replace("FILE", str(file))] if said else []
    assert on_node(hook(checks=[check])).warnings == expected


# ---- mounts ----------------------------------------------------------------------------------


def mounts(*hooks: dict[str, Any], edf: tuple[NodeMount, ...] = ()) -> list[tuple[str, str]]:
    joined = on_node(*hooks, parts=container(*edf))
    return [(bind.source, bind.target) for bind in joined.parts.mounts]


def test_a_pattern_mounts_each_match_at_its_own_path_or_below_the_target(tmp_path: Path) -> None:
    for name in ("liba.so", "libb.so", "other"):
        (tmp_path / name).touch()
    a, b = f"{tmp_path}/liba.so", f"{tmp_path}/libb.so"
    assert mounts(hook(mounts=[mount(f"{tmp_path}/*.so")])) == [(a, a), (b, b)]
    assert mounts(hook(mounts=[mount(f"{tmp_path}/*.so", "/opt/x/")])) == [
        (a, "/opt/x/liba.so"),
        (b, "/opt/x/libb.so"),
    ]
    assert mounts(hook(mounts=[mount(a, "/opt/x")])) == [(a, "/opt/x")]


def test_a_missing_mount_source_is_named_unless_it_is_optional(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"^hook cxi: mount source '.*/none' does not exist on"):
        mounts(hook(mounts=[mount(f"{tmp_path}/none")]))
    assert mounts(hook(mounts=[mount(f"{tmp_path}/none", optional=True)])) == []


def test_the_mount_of_the_environment_file_counts_where_both_want_one(tmp_path: Path) -> None:
    mine = container(NodeMount("bind", "/mine", "/opt/x", ()))
    hooks = on_node(hook(mounts=[mount(str(tmp_path), "/opt/x")]), parts=mine)
    assert [(bind.source, bind.target) for bind in hooks.parts.mounts] == [("/mine", "/opt/x")]
    assert hooks.warnings == [
        f"hook mount '{tmp_path}' is left out: the environment file mounts '/mine' on '/opt/x'"
    ]


def test_two_hooks_may_want_the_same_mount_but_not_two_on_one_place(tmp_path: Path) -> None:
    same = hook(mounts=[mount(str(tmp_path), "/x")])
    assert mounts(same, same) == [(str(tmp_path), "/x")]
    with pytest.raises(LaunchError, match="two hooks mount on '/x'"):
        mounts(same, hook("other", mounts=[mount("/usr", "/x")]))


# ---- variables -------------------------------------------------------------------------------


def test_variables_of_a_hook_stand_between_those_of_edf_and_image() -> None:
    both = hook(env={"A": "hook", "B": "hook", "C": None})
    assert settings(both, edf={"A": "edf"}, B="image", C="image") == {
        "A": "edf",
        "B": "hook",
        "C": None,
    }


def test_a_variable_that_the_edf_removes_stays_away() -> None:
    both = hook(env={"A": "hook"}, prepend={"A": ["/x"]})
    assert settings(both, edf={"A": None}) == {"A": None}


def test_directories_are_put_before_whatever_value_would_count() -> None:
    adding = hook(prepend={"PATH": ["/x"]})
    assert settings(adding) == {"PATH": "/x:/bin"}
    assert settings(adding, edf={"PATH": "/edf"}) == {"PATH": "/x:/edf"}
    libraries = hook(prepend={"LD_LIBRARY_PATH": ["/x", "/y"]})
    assert settings(libraries, node={"LD_LIBRARY_PATH": "/job"}) == {
        "LD_LIBRARY_PATH": "/x:/y:/job"
    }
    assert settings(libraries, node={"LD_LIBRARY_PATH": ""}) == {"LD_LIBRARY_PATH": "/x:/y"}


def test_the_directories_of_a_later_hook_come_first_and_none_comes_twice() -> None:
    first, second = hook(prepend={"P": ["/a", "/b"]}), hook("x", prepend={"P": ["/c"]})
    assert settings(first, second, P="/b:/d") == {"P": "/c:/a:/b:/d"}


def test_only_hooks_change_slurms_variables() -> None:
    hooks = on_node(hook(env={"SLURM_CONF": "/x", "A": "1"}))
    changes = environment.for_tasks(plan(), hooks.settings, {}, {})
    assert "SLURM_CONF" not in changes
    assert hooks.for_tasks() == {"SLURM_CONF": "/x"}


def test_the_nodes_own_words_are_filled_in() -> None:
    words = hook(env={"A": "{node.job}/{node.uid}/x", "B": "{other}"})
    assert settings(words, node={"SLURM_JOB_ID": "7"}) == {
        "A": f"7/{os.getuid()}/x",
        "B": "{other}",
    }
    with pytest.raises(LaunchError, match=r"^hook cxi: '\{node.job\}/\{node.uid\}/x' needs"):
        settings(words)


def test_what_is_optional_may_need_words_that_a_step_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    of_job = [mount(f"{tmp_path}/{{node.job}}", "/x", optional=True)]
    assert mounts(hook(mounts=of_job)) == []
    whole = on_node(hook(mounts=of_job), node={"SLURM_JOB_ID": "7"}).parts
    assert [bind.source for bind in whole.mounts] == [f"{tmp_path}/7"]


def test_an_automatic_hook_applies_where_its_variable_is() -> None:
    pmix = hook(automatic_when=["PMIX_RANK", "SLURM_MPI_TYPE=pmix*"], env={"A": "1"})
    assert settings(pmix) == {}
    assert settings(pmix, node={"SLURM_MPI_TYPE": "pmi2"}) == {}
    assert settings(pmix, node={"SLURM_MPI_TYPE": "pmix_v4"}) == {"A": "1"}
    assert settings(pmix, node={"PMIX_RANK": ""}) == {"A": "1"}


# ---- operations of the guard -----------------------------------------------------------------


def test_hooks_that_need_the_images_files_are_handed_to_a_program_of_ours() -> None:
    wanting = hook(search=["/opt/x"], env={"A": "1"})
    hooks = on_node(hook("plain", env={"B": "1"}), wanting, LD_LIBRARY_PATH="/image")
    file, more = hooks.operations()
    assert more == ("more", ["/libexec/inject", "/s/hooks.json"])
    assert file[1][0] == "/s/hooks.json"
    request = json.loads(file[1][1])
    assert [use["name"] for use in request["hooks"]] == ["cxi"]
    assert request["root"] == "/s/root"
    assert request["library_path"] == "/image"


def test_what_is_looked_for_in_the_image_may_name_the_node_too(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/libx.so").touch()
    words = hook(
        libraries=[{"files": [f"{tmp_path}/{{node.job}}/lib*"], "optional": False}],
        search=["/y/{node.job}"],
        checks=[{"kind": "file", "severity": "warn", "subject": "/z/{node.job}"}],
    )
    hooks = on_node(words, node={"SLURM_JOB_ID": "7"})
    file, _more = hooks.operations()
    [request] = json.loads(file[1][1])["hooks"]
    assert request["libraries"][0]["files"] == [f"{tmp_path}/7/libx.so"]
    assert request["search"] == ["/y/7"]
    assert request["checks"][0]["subject"] == "/z/7"


def test_hooks_that_only_set_variables_cost_the_guard_nothing() -> None:
    hooks = on_node(hook(env={"A": "1"}))
    assert hooks.operations() == []


def test_oci_hooks_of_hooks_go_to_the_container() -> None:
    first = {"hookName": "createContainer", "path": "/bin/true", "args": ["a", "b"], "timeout": 5}
    second = {
        "hookName": "poststop",
        "path": "/bin/true",
        "args": [],
        "env": ["X=1"],
        "timeout": None,
    }
    whole = on_node(hook(hooks=[first])).parts
    assert [definition["stages"] for definition in whole.oci_hooks] == [["createContainer"]]
    assert on_node(hook(hooks=[second])).oci.last_operations(PATHS)[0][0] == "more"


def test_notes_become_variables_warnings_or_the_end() -> None:
    hooks = on_node(hook(refresh=True))
    hooks.take_note('{"env": {"LD_LIBRARY_PATH": "/x"}}')
    hooks.take_note('{"warning": "hook cxi: old"}')
    assert hooks.for_tasks() == {"LD_LIBRARY_PATH": "/x"}
    assert hooks.warnings == ["hook cxi: old"]
    with pytest.raises(LaunchError, match=r"^no$") as refused:
        hooks.take_note('{"error": "no", "also": ["nor this"]}')
    assert (refused.value.see, refused.value.also) == ("hook-check", ("nor this",))


def test_code_that_this_node_does_not_have_is_refused() -> None:
    with pytest.raises(LaunchError, match="hook code 'os' is not part of this node's"):
        on_node(hook(code="os"))
