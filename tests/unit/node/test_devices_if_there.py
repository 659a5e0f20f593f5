"""Devices for every user where a node has them, and NVIDIA's variables for its GPUs."""

import json
from pathlib import Path

import pytest

from container_engine.base.errors import LaunchError
from container_engine.node.container.checks import resolved
from container_engine.node.container.description import Paths
from container_engine.node.container.edits import HookEdits
from container_engine.node.devices import devices_if_there
from container_engine.node.devices.cdi import Registry, directories
from container_engine.node.hooks.run import HooksOnNode
from container_engine.node.node_plan import NodePlan
from tests.unit.node.plans import container, device, image, plan

GPUS = ("nvidia.com/gpu=all",)
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvcuvid.so.1", "libGLX_nvidia.so.0", "other")
HAS_ALL = {"NVIDIA_VISIBLE_DEVICES": "all"}


class Node:
    def __init__(self, root: Path) -> None:
        self.cdi = root / "cdi"
        self.driver = root / "driver"
        self.driver.mkdir()
        for name in DRIVER:
            (self.driver / name).write_text("")

    def with_gpus(self) -> None:
        """Add two GPUs with a driver, as `nvidia-ctk cdi generate` writes it."""
        nodes = {"0": ["/dev/zero"], "1": ["/dev/full"], "all": ["/dev/zero", "/dev/full"]}
        mounts = [
            {"hostPath": str(self.driver / name), "containerPath": f"/usr/lib/{name}"}
            for name in DRIVER
        ]
        content = {
            "cdiVersion": "0.6.0",
            "kind": "nvidia.com/gpu",
            "containerEdits": {"deviceNodes": [{"path": "/dev/null"}], "mounts": mounts},
            "devices": [
                {"name": name, "containerEdits": {"deviceNodes": [{"path": p} for p in paths]}}
                for name, paths in nodes.items()
            ],
        }
        self.cdi.mkdir()
        (self.cdi / "nvidia.json").write_text(json.dumps(content))

    def plan(self, wanted: tuple[str, ...], **values: object) -> NodePlan:
        return plan(devices_if_there=list(wanted), cdi_dirs=[str(self.cdi)], **values)

    def edits(
        self,
        of_image: dict[str, str] | None = None,
        edf: dict[str, str | None] | None = None,
        wanted: tuple[str, ...] = GPUS,
        **job: str,
    ) -> HookEdits:
        edits = HookEdits(Paths("", ""))
        the_plan = self.plan(wanted, image=image(**(of_image or {})))
        here = resolved(the_plan, job).but(env=edf or {})
        devices_if_there.add(the_plan, here, registry(the_plan), job, edits)
        return edits


def registry(the_plan: NodePlan) -> Registry:
    return Registry(directories(the_plan.cdi_dirs, the_plan.user_cdi_dir, ""))


def driver(edits: HookEdits) -> list[str]:
    return sorted(Path(bind.target).name for bind in edits.mounts)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


ALL = ["/dev/null", "/dev/zero", "/dev/full"]


def test_a_node_without_them_goes_on_without_a_word(node: Node) -> None:
    edits = node.edits(HAS_ALL, wanted=(*GPUS, "/dev/none", "/dev/nothing*"))
    assert (edits.devices, edits.unmet, edits.warnings) == ([], [], [])


def test_paths_and_patterns_are_given_where_they_are_devices(node: Node) -> None:
    assert node.edits(wanted=("/dev/nul*", "/dev/none", "/etc/passwd")).devices == ["/dev/null"]


@pytest.mark.parametrize(
    "said", [{}, {"NVIDIA_VISIBLE_DEVICES": ""}, {"NVIDIA_VISIBLE_DEVICES": "void"}]
)
def test_without_the_variable_there_are_device_files_and_no_driver(
    node: Node, said: dict[str, str]
) -> None:
    node.with_gpus()
    edits = node.edits(said)
    assert (edits.devices, driver(edits)) == (ALL, [])


def test_without_the_driver_variables_and_groups_of_the_devices_are_still_theirs(
    node: Node,
) -> None:
    node.with_gpus()
    file = node.cdi / "nvidia.json"
    content = json.loads(file.read_text())
    program = {"hookName": "createContainer", "path": "/bin/true"}
    shared = {"env": ["OF_THE_SITE=1"], "additionalGids": [4_000_000], "hooks": [program]}
    content["containerEdits"] |= shared
    file.write_text(json.dumps(content))
    edits = node.edits()
    assert edits.env == {"OF_THE_SITE": "1"}
    assert "group 4000000" in edits.warnings[0]
    assert edits.oci_hooks == []
    assert node.edits(HAS_ALL).oci_hooks == [program]


@pytest.mark.parametrize("where", ["of_image", "edf", "job"])
def test_the_variable_brings_the_driver_wherever_it_is_set(node: Node, where: str) -> None:
    node.with_gpus()
    edits = node.edits(**(HAS_ALL if where == "job" else {where: HAS_ALL}))
    assert edits.devices == ALL
    assert driver(edits) == ["libcuda.so.1", "libnvidia-ml.so.1", "other"]


def test_the_environment_counts_before_the_image_before_the_job(node: Node) -> None:
    node.with_gpus()
    assert driver(node.edits(HAS_ALL, {}, NVIDIA_VISIBLE_DEVICES="void"))
    assert not driver(node.edits(HAS_ALL, {"NVIDIA_VISIBLE_DEVICES": None}))


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ("", ["libcuda.so.1", "libnvidia-ml.so.1"]),
        ("utility", ["libnvidia-ml.so.1"]),
        ("compute, video", ["libcuda.so.1", "libnvcuvid.so.1"]),
        ("graphics", ["libGLX_nvidia.so.0"]),
        ("all", ["libGLX_nvidia.so.0", "libcuda.so.1", "libnvcuvid.so.1", "libnvidia-ml.so.1"]),
    ],
)
def test_capabilities_choose_parts_of_the_driver(node: Node, said: str, parts: list[str]) -> None:
    node.with_gpus()
    edits = node.edits({**HAS_ALL, "NVIDIA_DRIVER_CAPABILITIES": said})
    assert driver(edits) == [*parts, "other"]


def test_an_unknown_capability_is_named_once_where_there_is_a_driver(node: Node) -> None:
    said = {**HAS_ALL, "NVIDIA_DRIVER_CAPABILITIES": "compute,utilty,compat32"}
    wanted = (*GPUS, "nvidia.com/gpu=0")
    assert node.edits(said, wanted=wanted).warnings == []
    node.with_gpus()
    (warning,) = node.edits(said, wanted=wanted).warnings
    assert warning == (
        "NVIDIA_DRIVER_CAPABILITIES: the driver has no part 'utilty' (its parts are all, compat32,"
        " compute, display, graphics, ngx, utility, video)"
    )


def test_a_list_chooses_devices_and_an_unknown_one_is_refused(node: Node) -> None:
    node.with_gpus()
    edits = node.edits({"NVIDIA_VISIBLE_DEVICES": "1"})
    assert edits.devices == ["/dev/null", "/dev/full"]
    ((_hook, error),) = node.edits({"NVIDIA_VISIBLE_DEVICES": "0,7"}).unmet
    assert str(error).startswith(
        "NVIDIA_VISIBLE_DEVICES: device 'nvidia.com/gpu=7': no CDI device of that name, this node"
    )


def test_none_is_the_driver_without_devices(node: Node) -> None:
    node.with_gpus()
    edits = node.edits({"NVIDIA_VISIBLE_DEVICES": "none"})
    assert (edits.devices, "libcuda.so.1" in driver(edits)) == ([], True)


def test_an_environment_that_names_some_gets_those(node: Node) -> None:
    node.with_gpus()
    values: dict[str, object] = {"devices": [device("nvidia.com/gpu=0", cdi=True)]}
    edits = HookEdits(Paths("", ""))
    the_plan = node.plan(GPUS, **values)
    devices_if_there.add(the_plan, resolved(the_plan, {}), registry(the_plan), {}, edits)
    assert edits.devices == []


def test_a_broken_file_is_reported_and_the_launch_continues(node: Node) -> None:
    node.with_gpus()
    (node.cdi / "nvidia.json").write_text("{")
    edits = node.edits(HAS_ALL)
    assert (edits.devices, edits.unmet) == ([], [])
    (warning,) = edits.warnings
    assert warning.startswith("devices_if_there of the site: no device of this list is added: ")


def test_a_launch_refuses_what_the_variable_asks_for_in_vain(node: Node) -> None:
    node.with_gpus()
    the_plan = node.plan(GPUS, image=image(NVIDIA_VISIBLE_DEVICES="7"))
    with pytest.raises(LaunchError, match="NVIDIA_VISIBLE_DEVICES: device"):
        HooksOnNode(the_plan, resolved(the_plan, {}), container(), {}, Paths("", ""))


# ---- of hooks --------------------------------------------------------------------------------


def of_hook(
    node: Node, wanted: tuple[str, ...] = (), devices: tuple[str, ...] = (), **job: str
) -> HookEdits:
    edits = HookEdits(Paths("", ""))
    edits.cdi_if_there["nvidia.com/gpu=all"] = "gpus"
    the_plan = node.plan(wanted, devices=[device(name, cdi=True) for name in devices])
    devices_if_there.add(the_plan, resolved(the_plan, job), registry(the_plan), job, edits)
    return edits


def test_a_hook_gives_all_there_is_where_nobody_selects(node: Node) -> None:
    assert of_hook(node).devices == []
    node.with_gpus()
    edits = of_hook(node)
    assert (edits.devices, driver(edits), edits.warnings) == (ALL, sorted(DRIVER), [])


@pytest.mark.parametrize(
    ("said", "devices", "has_driver"),
    [
        ("all", ALL, True),
        ("1", ["/dev/null", "/dev/full"], True),
        ("none", [], True),
        ("void", ALL, False),
    ],
)
def test_the_variables_select_from_what_a_hook_offers(
    node: Node, said: str, devices: list[str], has_driver: bool
) -> None:
    node.with_gpus()
    edits = of_hook(node, NVIDIA_VISIBLE_DEVICES=said)
    assert (edits.devices, edits.unmet) == (devices, [])
    usual = ["libcuda.so.1", "libnvidia-ml.so.1", "other"]
    assert driver(edits) == (usual if has_driver else [])


def test_a_device_that_a_variable_names_and_the_node_lacks_is_refused_with_a_hook_too(
    node: Node,
) -> None:
    node.with_gpus()
    [(hook, error)] = of_hook(node, NVIDIA_VISIBLE_DEVICES="7").unmet
    assert hook == ""
    assert "NVIDIA_VISIBLE_DEVICES: device 'nvidia.com/gpu=7'" in str(error)


def test_the_site_leaves_to_a_hook_what_that_gives_and_both_to_the_environment(node: Node) -> None:
    node.with_gpus()
    both = of_hook(node, wanted=GPUS)
    assert (both.devices, len(both.mounts)) == (ALL, len(DRIVER))
    assert of_hook(node, wanted=GPUS, devices=("nvidia.com/gpu=0",)).devices == []
