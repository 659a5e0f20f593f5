"""The guard's specification: the order of a start, as data."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container_engine.base.errors import LaunchError
from container_engine.node.container.description import NodeMount, Paths, Person
from container_engine.node.container.specification import encode, operations
from container_engine.node.node_plan import node_plan
from tests.unit.node.plans import container

if TYPE_CHECKING:
    from container_engine.node.container.description import Operation

PATHS = Paths("/s", "/libexec")
ME = Person(1000, 1001, "me:*:1000:1001::/home/me:/bin/sh", "us:x:1001:", "/home/me")
WORDS = st.text(st.characters(blacklist_characters="\0", codec="utf-8"))


def steps(*mounts: NodeMount, person: Person = ME, secret: str = "") -> list[Operation]:
    made = container(*mounts, by_podman=True)
    return operations(PATHS, ["/i.sqsh"], made, {"TOKEN": secret}, person)


def names(*mounts: NodeMount) -> list[str]:
    return [name for name, _arguments in steps(*mounts)]


def of(name: str, *mounts: NodeMount) -> list[list[str]]:
    return [list(arguments) for step, arguments in steps(*mounts) if step == name]


def test_a_start_has_its_order() -> None:
    order = list(dict.fromkeys(names()))
    assert order[:2] == ["session", "fuse"]
    assert order.index("overlay") < order.index("root-entry") < order.index("podman")
    assert order[-2:] == ["podman", "container"]


def test_what_replaces_a_file_of_names_is_written_before_the_container_is_made() -> None:
    paths = Paths("/s", "/libexec")
    paths.lacking = ["/etc/hosts", "/etc/resolv.conf"]
    whole = operations(paths, ["/i.sqsh"], container(), {}, ME)
    made = [arguments for name, arguments in whole if name == "file"]
    assert ["/s/hosts", "127.0.0.1 localhost\n::1 localhost\n"] in made
    assert ["/s/resolv.conf", ""] in made
    assert not [path for path, *_rest in map(tuple, of("file")) if path.startswith("/s/hosts")]


def test_hooks_find_the_images_files_and_come_before_the_container() -> None:
    more: Operation = ("more", ["/libexec/inject"])
    whole = operations(PATHS, ["/i.sqsh"], container(), {}, ME, [more])
    order = [name for name, _arguments in whole]
    assert order[-3:] == ["file", "crun", "container"]
    assert order.index("more") < order.index("root-place")
    assert order.index("overlay") < order.index("more")


@pytest.mark.parametrize("start", ["podman", "crun"])
def test_the_plan_says_who_creates_the_container(start: str) -> None:
    made = container(by_podman=node_plan({"settings": {"start": start}}).by_podman)
    assert operations(PATHS, ["/i.sqsh"], made, {}, ME)[-2][0] == start


def test_podman_creates_it_where_a_hook_changes_its_configuration() -> None:
    hooked = container(oci_hooks=[{"stages": ["precreate"]}])
    assert operations(PATHS, ["/i.sqsh"], hooked, {}, ME)[-2][0] == "podman"


def test_the_image_is_served_and_overlaid() -> None:
    assert of("fuse") == [["/libexec/ce-image", "/i.sqsh", "/s/image"]]
    assert of("overlay") == [["/s/changes", "/s/work", "/s/root", "/s/image"]]


def test_each_image_is_served_and_lies_above_the_one_before() -> None:
    whole = operations(PATHS, ["/i.sqsh", "/a.sqsh", "/b.sqsh"], container(), {}, ME)
    places = ["/s/image", "/s/image1", "/s/image2"]
    assert [list(arguments)[1:] for name, arguments in whole if name == "fuse"] == [
        [image, place]
        for image, place in zip(("/i.sqsh", "/a.sqsh", "/b.sqsh"), places, strict=True)
    ]
    assert [list(a) for n, a in whole if n == "overlay"] == [
        ["/s/changes", "/s/work", "/s/root", *places]
    ]


def test_all_squashfs_files_are_served_before_the_first_is_waited_for() -> None:
    mounts = (
        NodeMount("squashfs", "/a.sqsh", "/a", ()),
        NodeMount("squashfs", "/b.sqsh", "/b", ()),
    )
    assert of("fuse", *mounts)[1:] == [
        ["/libexec/ce-image", "/a.sqsh", "/s/squashfs0"],
        ["/libexec/ce-image", "/b.sqsh", "/s/squashfs1"],
    ]
    assert of("served", *mounts) == [["/s/squashfs0"], ["/s/squashfs1"]]
    order = names(*mounts)
    assert max(i for i, n in enumerate(order) if n == "fuse") < order.index("overlay")
    [argv] = of("podman", *mounts)
    assert [word for word in argv if "source=/s/squashfs1" in word and "destination=/b" in word]


def test_other_mounts_keep_their_order_and_sources() -> None:
    mounts = (
        NodeMount("bind", "/x", "/1", ()),
        NodeMount("squashfs", "/a.sqsh", "/2", ()),
    )
    [argv] = of("podman", *mounts)
    own = [word for word in argv if "destination=/1" in word or "destination=/2" in word]
    assert ["/x" in own[0], "/s/squashfs0" in own[1]] == [True, True]


def test_the_user_gets_entries() -> None:
    assert of("root-entry") == [
        ["/s/root", "/etc/passwd", "1000", ME.passwd],
        ["/s/root", "/etc/group", "1001", ME.group],
    ]


def test_the_directories_of_tasks_are_made_unless_a_mount_hides_them() -> None:
    made = container(NodeMount("bind", "/x", "/data", ()), NodeMount("tmpfs", "", "/tmp", ()))
    directories = ["/home/me", "/no/such", "relative", "", "/data", "/data/me", "/no/such"]
    directories += ["/dev/null", "/", "/proc/x", "/database"]
    whole = operations(PATHS, ["/i.sqsh"], made.but(directories=directories), {}, ME)
    found = [list(arguments) for name, arguments in whole if name == "root-dir"]
    wanted = ("/home/me", "/no/such", "/", "/database")
    assert found == [["/s/root", path] for path in wanted]


def test_each_destination_gets_a_place_of_the_kind_of_its_source() -> None:
    made = container(
        NodeMount("bind", "/x", "/data", ()),
        NodeMount("bind", "/y", "/data/below", ()),
        NodeMount("tmpfs", "tmpfs", "/mnt/t", ()),
        NodeMount("squashfs", "/a.sqsh", "/srv/x", ()),
        devices=("/dev/fuse", "/etc/hosts:/opt/device"),
    )
    whole = operations(PATHS, ["/i.sqsh"], made, {}, ME)
    found = {a[1]: a[2] for name, a in whole if name == "root-place"}
    assert found == {
        **dict.fromkeys(("/dev", "/sys", "/mnt/t"), "/"),
        "/etc/hosts": "/etc/hosts",
        "/etc/resolv.conf": "/etc/resolv.conf",
        "/etc/hostname": "/s/hostname",
        "/run/.containerenv": "/libexec/ce-init",
        "/data": "/x",
        "/srv/x": "/s/squashfs0",
        "/opt/device": "/etc/hosts",
        "/proc": "/s/proc",
    }


def test_no_value_of_the_environment_is_on_podmans_command_line() -> None:
    found = [
        (name, a) for name, arguments in steps(secret="s3cret") for a in arguments if "s3cret" in a
    ]
    assert [name for name, _argument in found] == ["file"]


def test_root_of_a_single_user_tells_apt_so_and_nobody_else_does() -> None:
    assert of("root-setting") == []
    root = operations(PATHS, "/i.sqsh", container(ids=(0, 0)), {}, ME)
    found = [list(arguments) for step, arguments in root if step == "root-setting"]
    assert found == [
        ["/s/root", "/etc/apt/apt.conf.d/99container-engine", 'APT::Sandbox::User "root";\n']
    ]


# ---- the format ------------------------------------------------------------------------------


def decode(text: bytes) -> list[Operation]:
    """Decode a specification as ce-guard does."""
    strings = [part.decode("utf-8", "surrogateescape") for part in text.split(b"\0")]
    assert strings.pop() == ""
    found: list[Operation] = []
    while strings:
        count = int(strings[1])
        found.append((strings[0], strings[2 : 2 + count]))
        del strings[: 2 + count]
    return found


@given(st.lists(st.tuples(WORDS, st.lists(WORDS))))
def test_what_is_written_can_be_read(given_steps: list[tuple[str, list[str]]]) -> None:
    assert decode(encode(given_steps)) == given_steps


def test_bytes_that_are_not_utf_8_survive() -> None:
    assert encode([("dir", ["/\udcff"])]) == b"dir\x001\0/\xff\0"


def test_a_nul_makes_no_further_operation() -> None:
    with pytest.raises(LaunchError, match=r"^a NUL character in 'podman'$"):
        encode([("podman", ["podman", "x\0more\0" + "1\0/tmp/theirs"])])


def of_site(way: str, podman: str, runtime: str) -> dict[str, list[str]]:
    """Return the operations by name on a site with these programs; files by their path."""
    paths = Paths("/s", "/libexec", podman, runtime)
    made = operations(paths, ["/i.sqsh"], container(by_podman=way == "podman"), {}, ME)
    return {a[0] if name == "file" else name: list(a) for name, a in made}


def test_a_site_chooses_podman_and_the_runtime() -> None:
    usual, own = (of_site("podman", *pair) for pair in (("", ""), ("/opt/podman", "/opt/crun")))
    assert (usual["podman"][0], own["podman"][0]) == ("podman", "/opt/podman")
    assert "engine.runtimes" not in usual["/s/containers.conf"][1]
    runtimes = tomllib.loads(own["/s/containers.conf"][1])["engine"]["runtimes"]
    assert runtimes == {"crun": ["/opt/crun"]}
    assert of_site("crun", "", "")["crun"][0] == "crun"
    assert of_site("crun", "/opt/podman", "/opt/crun")["crun"][0] == "/opt/crun"
