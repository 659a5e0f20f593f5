"""The sandbox's configuration files, its changes to a machine, and its processes."""

import subprocess
from pathlib import Path

import pytest

from ce_sandbox import config, down, machine, processes
from ce_sandbox.layout import MAX_NODES, MAX_NODES_AT_ONCE, Layout, from_environment
from ce_sandbox.up import chosen_tracking, configured_nodes
from tests.slurm.polling import until

HOST = config.Host("host", is_loopback=True)
WITHOUT = config.Engine(plugin_id=None, has_epilog=False)


@pytest.mark.parametrize("nodes", [1, 2, 64, MAX_NODES])
def test_the_configuration_tells_how_many_nodes_it_is_for(tmp_path: Path, nodes: int) -> None:
    layout = Layout(tmp_path)
    layout.etc.mkdir()
    layout.slurm_conf.write_text(config.slurm_conf(layout, nodes, HOST, WITHOUT))
    assert configured_nodes(layout) == nodes


def test_no_port_of_the_sandbox_is_one_of_a_system_slurm() -> None:
    text = config.slurm_conf(from_environment({}), 64, HOST, WITHOUT)
    assert "SlurmctldPort=16817\n" in text
    assert "Port=[16901-16964]\n" in text
    for number in range(200):
        other = Layout(Path(f"/srv/{number}"))
        last = other.first_node_port(MAX_NODES_AT_ONCE) + MAX_NODES_AT_ONCE - 1
        ports = (other.controller_port, last)
        # A system's Slurm has ports 6817 to 6819; ephemeral ports begin at 32768.
        assert 17000 < ports[0] < ports[1] < 32768


def test_many_nodes_have_the_ports_above_the_ephemeral_ones() -> None:
    text = config.slurm_conf(from_environment({}), MAX_NODES, HOST, WITHOUT)
    assert f"Port=[61000-{60999 + MAX_NODES}]\n" in text
    assert 60999 + MAX_NODES < 1 << 16


def test_two_sandboxes_of_a_machine_share_neither_ports_nor_users() -> None:
    both = Layout(Path("/srv/a")), Layout(Path("/srv/b"))
    for one, other in ((*both,), (from_environment({}), both[0])):
        ports = [
            range(port := each.first_node_port(64), port + MAX_NODES_AT_ONCE)
            for each in (one, other)
        ]
        assert not set(ports[0]) & set(ports[1])
        assert one.controller_port not in (other.controller_port, *ports[1])
        assert not set(one.users) & set(other.users)
    assert from_environment({}).users == ("ce-alice", "ce-bob")


@pytest.mark.parametrize("is_loopback", [True, False])
def test_the_daemons_listen_on_loopback_alone_where_slurm_can(
    tmp_path: Path, *, is_loopback: bool
) -> None:
    text = config.slurm_conf(
        Layout(tmp_path), 2, config.Host("host", is_loopback=is_loopback), WITHOUT
    )
    only = "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n"
    assert (only in text) == is_loopback


def test_without_the_engine_the_cluster_has_no_plugin_and_no_epilog(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert "required" not in config.plugstack_conf(layout, WITHOUT)
    assert "Epilog" not in config.slurm_conf(layout, 2, HOST, WITHOUT)


def test_another_build_of_the_plugin_is_another_configuration(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    first, second = (
        config.plugstack_conf(layout, config.Engine(plugin_id=name, has_epilog=True))
        for name in ("a", "b")
    )
    assert first != second
    assert first.splitlines()[-1] == f"required {layout.plugin} prefix={layout.prefix}"


def test_the_directory_comes_from_the_environment_or_is_the_default(tmp_path: Path) -> None:
    assert from_environment({"CE_SANDBOX_DIR": str(tmp_path)}).dir == tmp_path.resolve()
    assert from_environment({}).dir == Path("/var/lib/ce-sandbox")


def test_controllers_of_the_unified_tree_get_a_hierarchy_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").write_text("hugetlb\n")
    assert [change.describe for change in machine.cgroup_changes(tmp_path)] == [
        f"mkdir {tmp_path}/hugetlb",
        f"mount -t cgroup -o hugetlb cgroup {tmp_path}/hugetlb",
    ]


def test_down_lists_what_up_has_changed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(tmp_path)
    monkeypatch.setattr(down, "bring_down", lambda _layout: None)
    stopped = f"sandbox: stopped; left: {tmp_path} and its users (--purge removes them)\n"
    assert down.main([], layout) == 0
    assert capsys.readouterr().out == stopped
    (tmp_path / "changes-of-an-earlier-boot").write_text("mknod /dev/fuse c 10 229\n")
    for text in ("mount /a", "mount /b"):
        machine.record(layout, machine.Change(text, lambda: None))
    assert down.main([], layout) == 0
    left = "sandbox: left as changed until the next boot: mount"
    assert capsys.readouterr().out == f"{stopped}{left} /a\n{left} /b\n"


@pytest.mark.parametrize("controllers", [None, "\n"])
def test_cgroups_that_are_right_stay(tmp_path: Path, controllers: str | None) -> None:
    if controllers is not None:
        (tmp_path / "unified").mkdir()
        (tmp_path / "unified" / "cgroup.controllers").write_text(controllers)
    assert machine.cgroup_changes(tmp_path) == []


@pytest.mark.parametrize("tracking", config.TRACKINGS)
def test_the_cluster_goes_on_following_processes_as_it_did(tmp_path: Path, tracking: str) -> None:
    layout = Layout(tmp_path)
    layout.etc.mkdir()
    layout.slurm_conf.write_text(config.slurm_conf(layout, 2, HOST, WITHOUT, tracking))
    assert chosen_tracking(layout) == tracking


def test_a_machine_without_hierarchies_of_version_1_has_no_cgroups_for_the_cluster(
    tmp_path: Path,
) -> None:
    assert not machine.has_controllers(tmp_path)


def test_a_daemon_of_a_sandbox_in_another_pid_namespace_is_not_this_ones() -> None:
    here, there = ["sleep", "61.25"], ["sleep", "61.26"]
    apart = ("unshare", "-Urpf", "--kill-child")
    with subprocess.Popen(here) as one, subprocess.Popen((*apart, *there)) as other:
        try:
            children = Path(f"/proc/{other.pid}/task/{other.pid}/children")
            child = until("the process there", lambda: children.read_text().strip())
            line = Path(f"/proc/{child}/cmdline")
            until("its program", lambda: line.read_bytes().startswith(b"sleep"))
            assert processes.running([here, there]) == {one.pid: here}
        finally:
            one.kill()
            other.kill()
