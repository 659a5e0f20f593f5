"""CDI devices: the container gets what a specification says, or the launch is refused."""

import grp
import json
import os
from pathlib import Path
from typing import Any

import pytest

from container_engine.node.container.checks import NodeDevice, resolved
from container_engine.node.container.description import Paths
from container_engine.node.container.edits import HookEdits
from container_engine.node.devices import cdi, devices_if_there
from container_engine.node.devices.cdi import VERSIONS, Directory, Registry
from container_engine.node.hooks.prepare import add_devices
from container_engine.node.node_plan import node_plan


class Node:
    """Two directories of the site's and one of the user's; the last takes precedence."""

    def __init__(self, root: Path) -> None:
        self.paths = [root / name for name in ("etc", "run", "users")]
        for path in self.paths:
            path.mkdir()

    def write(self, name: str, where: int = 0, /, **spec: object) -> Path:
        device = {"name": "one", "containerEdits": {"env": [f"FROM={name}"]}}
        content = {"cdiVersion": "0.6.0", "kind": "example.com/thing", "devices": [device]}
        path = self.paths[where] / name
        path.write_text(json.dumps(content | spec))
        return path

    def edits(self, **edits: object) -> HookEdits:
        """Return the edits of a device that has only these."""
        self.write("a.json", devices=[{"name": "one", "containerEdits": edits}])
        return self.get()

    def get(self, *names: str) -> HookEdits:
        edits = HookEdits(Paths("", ""))
        places = [Directory(str(p), is_users=p.name == "users") for p in self.paths]
        wanted = names or ("example.com/thing=one",)
        devices = [NodeDevice(name, cdi=True, origin="/e.toml:5") for name in wanted]
        cdi.add(devices, Registry(places), edits)
        return edits

    def refusal(self, *names: str) -> str:
        return "\n".join(str(error) for _hook, error in self.get(*names).unmet)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_device_node_is_given_under_its_name_in_the_container(node: Node) -> None:
    edits = node.edits(
        deviceNodes=[
            {"path": "/dev/null", "permissions": "rw", "fileMode": 438, "uid": 0, "gid": 0},
            {"path": "/dev/thing", "hostPath": "/dev/zero", "type": "c", "major": 1, "minor": 5},
        ]
    )
    assert edits.devices == ["/dev/null", "/dev/zero:/dev/thing"]


def test_mounts_keep_their_options(node: Node, tmp_path: Path) -> None:
    edits = node.edits(
        mounts=[
            {"hostPath": str(tmp_path), "containerPath": "/in", "options": ["ro", "nosuid"]},
            {"hostPath": "x", "containerPath": "/t", "type": "tmpfs", "options": ["size=1m"]},
        ]
    )
    found = [(bind.kind, bind.source, bind.target, tuple(bind.options)) for bind in edits.mounts]
    assert found == [
        ("bind", str(tmp_path), "/in", ("ro", "nosuid")),
        ("tmpfs", "tmpfs", "/t", ("size=1m",)),
    ]


def test_a_mount_cannot_leave_the_container(node: Node, tmp_path: Path) -> None:
    edits = node.edits(mounts=[{"hostPath": str(tmp_path), "containerPath": "/a/../../../b"}])
    assert edits.mounts[0].target == "/b"


def test_variables_keep_all_behind_the_first_equals_sign(node: Node) -> None:
    assert node.edits(env=["A=b=c d", "E="]).env == {"A": "b=c d", "E": ""}


def test_a_variable_of_a_hook_counts_more(node: Node) -> None:
    edits = HookEdits(Paths("", ""))
    edits.env["FROM"] = "hook"
    node.write("a.json")
    place = Directory(str(node.paths[0]), is_users=False)
    cdi.add([NodeDevice("example.com/thing=one", cdi=True, origin="e")], Registry([place]), edits)
    assert edits.env["FROM"] == "hook"


def test_hooks_are_passed_on_whole(node: Node) -> None:
    hook = {
        "hookName": "createContainer",
        "path": "/bin/true",
        "args": ["true", "x"],
        "env": ["A=b"],
        "timeout": 3,
    }
    assert node.edits(hooks=[hook]).oci_hooks == [hook]


def nvidias(name: str, *arguments: str, program: str = "nvidia-cdi-hook") -> dict[str, object]:
    args = [program, *(["hook"] if program == "nvidia-ctk" else []), name, *arguments]
    return {"hookName": "createContainer", "path": f"/no/such/{program}", "args": args}


@pytest.mark.parametrize("program", ["nvidia-cdi-hook", "nvidia-ctk"])
def test_the_engine_does_what_hooks_of_nvidias_generator_would(node: Node, program: str) -> None:
    links = ("--link", "libx.so.1::/lib/libx.so", "--link=../y::lib/z/y")
    edits = node.edits(
        hooks=[
            nvidias("create-symlinks", *links, program=program),
            nvidias("update-ldcache", "--folder", "/lib", "--folder=/usr/lib64", program=program),
            nvidias("enable-cuda-compat", "--host-driver-version=1.2", program=program),
            nvidias("disable-device-node-modification", program=program),
        ]
    )
    assert edits.oci_hooks == []
    assert edits.links == {"/lib/libx.so": "libx.so.1", "/lib/z/y": "../y"}
    assert edits.searched == ["/lib", "/usr/lib64"]


def test_a_hook_of_nvidias_that_is_not_known_is_run(node: Node) -> None:
    hook = nvidias("something-new")
    assert node.edits(hooks=[hook]).oci_hooks == [hook]


def test_a_socket_of_a_daemon_that_does_not_run_is_left_out(node: Node) -> None:
    mounts = [{"hostPath": "/run/no-such-daemon/socket", "containerPath": "/run/x"}]
    edits = node.edits(mounts=mounts)
    assert (edits.mounts, edits.warnings) == ([], [])


def test_two_files_for_one_path_are_refused(node: Node) -> None:
    mounts = [{"hostPath": path, "containerPath": "/x"} for path in ("/etc/passwd", "/etc/group")]
    node.write("a.json", devices=[{"name": "one", "containerEdits": {"mounts": mounts}}])
    assert "'/etc/group' and '/etc/passwd' are both for '/x'" in node.refusal()


def test_what_a_file_says_for_all_its_devices_counts_once(node: Node) -> None:
    hook = {"hookName": "poststop", "path": "/bin/true"}
    node.write(
        "a.json",
        containerEdits={"env": ["ALL=1"], "hooks": [hook]},
        devices=[{"name": "a", "containerEdits": {}}, {"name": "b", "containerEdits": {}}],
    )
    edits = node.get("example.com/thing=a", "example.com/thing=b")
    assert edits.env == {"ALL": "1"}
    assert edits.oci_hooks == [hook]


def test_a_group_that_the_user_is_not_in_is_reported(node: Node) -> None:
    mine = os.getgroups()[0] if os.getgroups() else os.getgid()
    warnings = node.edits(additionalGids=[0, mine, 4242424]).warnings
    assert len(warnings) == 1
    assert (
        "is for members of group 4242424, and you are not one: ask the administrator to add"
        in warnings[0]
    )


def test_a_group_is_reported_by_its_name(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgroups", list)
    (warning,) = node.edits(additionalGids=[grp.getgrnam("daemon").gr_gid]).warnings
    assert "is for members of group daemon (" in warning


@pytest.mark.parametrize("key", ["intelRdt", "netDevices"])
def test_what_only_root_can_have_is_refused(node: Node, key: str) -> None:
    value: Any = {"closID": "x"} if key == "intelRdt" else [{"hostInterfaceName": "eth0"}]
    node.write("a.json", devices=[{"name": "one", "containerEdits": {key: value}}])
    assert f"asks for {key}, which only root can have" in node.refusal()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_read(node: Node, version: str) -> None:
    node.write("a.json", cdiVersion=version)
    assert node.get().env == {"FROM": "a.json"}


@pytest.mark.parametrize("name", ["a.yaml", "a.yml"])
def test_yaml_is_read(node: Node, name: str) -> None:
    (node.paths[0] / name).write_text(
        "cdiVersion: 0.5.0\nkind: example.com/thing\ndevices:\n"
        "- name: one\n  containerEdits:\n    env: ['A=b c']\n"
    )
    assert node.get().env == {"A": "b c"}


def test_a_later_directory_counts_more(node: Node) -> None:
    node.write("a.json", 0)
    node.write("b.json", 1)
    assert node.get().env == {"FROM": "b.json"}
    node.write("c.json", 2)
    assert node.get().env == {"FROM": "c.json"}


def test_two_files_of_one_directory_with_one_device_are_refused(node: Node) -> None:
    first, second = node.write("a.json"), node.write("b.json")
    assert f"in two files of equal weight: {first} and {second}" in node.refusal()


def test_an_unknown_device_is_refused_with_those_there_are(node: Node) -> None:
    node.write("a.json")
    assert node.refusal("example.com/thing=two") == (
        "/e.toml:5: device 'example.com/thing=two': no CDI device of that name,"
        " this node has example.com/thing=one"
    )


def test_all_faults_of_the_devices_are_reported_at_once(node: Node) -> None:
    edits = {"mounts": [{"hostPath": "/none", "containerPath": "/x"}]}
    node.write("a.json", devices=[{"name": "one", "containerEdits": edits}])
    lines = node.refusal(*(f"example.com/thing={name}" for name in ("one", "two", "three")))
    found = [line.partition(": ")[2].partition(",")[0] for line in lines.splitlines()]
    assert [line.partition(" (")[0].partition(": ")[0] for line in found] == [
        f"device 'example.com/thing={name}'" for name in ("one", "two", "three")
    ]


def test_on_a_node_without_files_the_directories_are_named(node: Node) -> None:
    places = ", ".join(map(str, node.paths))
    assert node.refusal().endswith(f"no CDI device of that name, there is none in {places}")


BAD: dict[str, tuple[dict[str, object], str]] = {
    "version": ({"cdiVersion": "9.0.0"}, "cdiVersion '9.0.0' is not one of 0.1.0, "),
    "no version": ({"cdiVersion": None}, "cdiVersion is missing"),
    "kind": ({"kind": "thing"}, "kind 'thing' is not VENDOR/CLASS"),
    "key": ({"containerEdit": {}}, "unknown key 'containerEdit'"),
    "key of an edit": ({"containerEdits": {"mount": []}}, "unknown key 'containerEdits.mount'"),
    "type": ({"devices": {}}, "devices: wrong type of value"),
    "variable": ({"containerEdits": {"env": ["A"]}}, "containerEdits.env: expected NAME=value"),
    "stage": (
        {"containerEdits": {"hooks": [{"hookName": "begin", "path": "/x"}]}},
        "containerEdits.hooks: 'begin' is not a stage",
    ),
    "program": (
        {"containerEdits": {"hooks": [{"hookName": "poststop", "path": "x"}]}},
        "containerEdits.hooks: 'x' is not an absolute path",
    ),
    "device node": (
        {"containerEdits": {"deviceNodes": [{"hostPath": "/dev/null"}]}},
        "containerEdits.deviceNodes[0].path is missing",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named_with_its_key(node: Node, name: str) -> None:
    spec, message = BAD[name]
    path = node.write("a.json", **spec)
    assert node.refusal().startswith(f"CDI file '{path}': {message}")


@pytest.mark.parametrize(("name", "text"), [("a.json", "{"), ("a.yaml", "a: &b 1"), ("b.json", "")])
def test_a_file_that_cannot_be_read_is_named(node: Node, name: str, text: str) -> None:
    path = node.paths[0] / name
    path.write_text(text)
    assert f"CDI file '{path}': " in node.refusal()


def test_a_pipe_is_not_waited_for(node: Node) -> None:
    os.mkfifo(node.paths[2] / "a.json", 0o600)
    assert node.refusal().startswith(f"CDI file '{node.paths[2]}/a.json': not a regular file")


def test_a_file_is_read_up_to_a_limit(node: Node) -> None:
    path = node.write("a.json")
    os.truncate(path, 4 << 20)
    assert "larger than" not in node.refusal()
    path.write_text("ä" * (2 << 20) + "\n")
    assert node.refusal().startswith(f"CDI file '{path}': larger than 4 MiB")


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"deviceNodes": [{"path": "/dev/none"}]}, "device node '/dev/none': No such file"),
        ({"deviceNodes": [{"path": "/etc/passwd"}]}, "'/etc/passwd' is not a device"),
        ({"mounts": [{"hostPath": "/none", "containerPath": "/x"}]}, "mount source '/none' does"),
    ],
)
def test_what_the_node_lacks_is_named(node: Node, edits: dict[str, object], message: str) -> None:
    path = node.write("a.json", devices=[{"name": "one", "containerEdits": edits}])
    start = f"/e.toml:5: device 'example.com/thing=one' ({path}): {message}"
    assert node.refusal().startswith(start)


@pytest.mark.parametrize("what", ["file", "directory", "above"])
def test_a_file_that_others_may_write_is_refused(node: Node, what: str) -> None:
    path = node.write("a.json")
    changed = {"file": path, "directory": path.parent, "above": path.parent.parent}[what]
    changed.chmod(0o777)
    assert node.refusal() == f"CDI file '{changed}': others than its owner may write it"


def test_a_file_of_somebody_else_is_refused(node: Node) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    path = node.write("a.json")
    os.chown(path, 65534, 65534)
    assert node.refusal() == f"CDI file '{path}': owned by user 65534, not by root"


def test_a_users_own_file_cannot_run_a_program(node: Node) -> None:
    hook = {"hookName": "poststop", "path": "/bin/true"}
    node.write("a.json", 2, containerEdits={"hooks": [hook]})
    assert node.refusal().endswith("a user's own file cannot run programs")


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_users_own_file_that_others_may_write_is_refused(node: Node, what: str) -> None:
    file = node.write("a.json", 2)
    path = file if what == "file" else file.parent
    path.chmod(0o775)
    assert node.refusal() == f"CDI file '{path}': others than its owner may write it"


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_users_own_file_is_not_somebody_elses(node: Node, what: str) -> None:
    file = node.write("a.json", 2)
    path = file if what == "file" else file.parent
    os.chown(path, 65534, 65534)
    assert node.refusal() == f"CDI file '{path}': owned by user 65534, not by you"


def test_a_users_own_directory_counts_only_if_the_site_says_so() -> None:
    assert [place.path for place in cdi.directories(["/etc/cdi"], "", "/home/u")] == ["/etc/cdi"]
    users = cdi.directories(["/etc/cdi"], ".config/cdi", "/home/u")[-1]
    assert (users.path, users.is_users) == ("/home/u/.config/cdi", True)


class Wish:
    """A hook that wants a device if the node has it, and the edits that result."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.settings = {"cdi_dirs": [str(node.paths[0])], "user_cdi_dir": ""}

    def edits(self, name: str) -> HookEdits:
        edits = HookEdits(Paths("", ""))
        hook: Any = {"name": "gpus", "cdi_if_there": [name]}
        add_devices(edits, hook, {})
        the_plan = node_plan({"settings": self.settings})
        registry = Registry(cdi.directories(the_plan.cdi_dirs, "", ""))
        devices_if_there.add(the_plan, resolved(the_plan, {}), registry, {}, edits)
        return edits


def test_a_hook_has_a_device_that_a_node_may_lack_where_it_is(node: Node) -> None:
    node.write("a.json")
    wish = Wish(node)
    there = wish.edits("example.com/thing=one")
    assert (there.env, there.unmet) == ({"FROM": "a.json"}, [])
    gone = wish.edits("example.com/thing=two")
    assert (gone.env, gone.unmet, gone.warnings) == ({}, [], [])


def test_a_device_that_a_node_may_lack_is_refused_where_its_file_is_wrong(node: Node) -> None:
    node.write("a.json", devices=[{"name": "one", "containerEdits": {"netDevices": [{}]}}])
    edits = Wish(node).edits("example.com/thing=one")
    assert [hook for hook, _error in edits.unmet] == ["gpus"]


def test_files_that_cannot_be_trusted_give_none_of_them_and_say_so(node: Node) -> None:
    node.write("a.json").chmod(0o666)
    edits = Wish(node).edits("example.com/thing=one")
    assert edits.unmet == []
    (line,) = edits.warnings
    assert line.startswith("hook gpus: no device of its cdi_if_there is added: ")
