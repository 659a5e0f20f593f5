"""A container as Podman's command line: pure text."""

import csv
import io
import json
import tomllib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container_engine.node.container import podman
from container_engine.node.container.description import (
    INIT_PATH,
    NodeMount,
    Parts,
    Paths,
    Person,
)
from tests.unit.node.plans import container

if TYPE_CHECKING:
    from container_engine.oci.runtime import HookFile

PATHS = Paths("/s", "/libexec")
ME = Person(1000, 1001, "", "", "/home/me")
PRINTABLE = st.text(st.characters(blacklist_characters="\0\r", codec="utf-8"), min_size=1)


def arguments(given_container: Parts) -> list[str]:
    return podman.arguments(PATHS, given_container)


def values(argv: list[str], option: str) -> list[str]:
    """Return the value of each `option`, given as a word of its own or after an equals sign."""
    after = [argv[index + 1] for index, word in enumerate(argv) if word == option]
    return after + [word[len(option) + 1 :] for word in argv if word.startswith(f"{option}=")]


def fields(bind: NodeMount) -> list[str]:
    """Return the fields of a mount as Podman reads them."""
    [text] = [
        m for m in values(arguments(container(bind)), "--mount") if bind.target in m or '"' in m
    ]
    [row] = csv.reader(io.StringIO(text, newline=""), strict=True)
    return row


def options(*flags: str, kind: str = "bind") -> set[str]:
    row = fields(NodeMount(kind, "/from", "/to", flags))
    return set(row) - {f"type={kind}", "type=bind", "source=/from", "destination=/to"}


@pytest.mark.parametrize("path", ["/etc/hosts", "/etc/resolv.conf", "/etc/hostname"])
def test_what_is_mounted_on_a_file_of_names_takes_its_place(path: str) -> None:
    mounts = values(arguments(container(NodeMount("bind", "/from", path, ()))), "--mount")
    assert [m.split(",")[1] for m in mounts if f"destination={path}," in m] == ["source=/from"]


def test_a_file_of_names_that_the_node_lacks_comes_from_the_session() -> None:
    paths = Paths("/s", "/libexec")
    paths.lacking = ["/etc/hosts"]
    mounts = values(podman.arguments(paths, container()), "--mount")
    sources = [m.split(",")[1] for m in mounts if "/etc/hosts," in m or "/etc/resolv.conf," in m]
    assert sources == ["source=/s/hosts", "source=/etc/resolv.conf"]


# ---- the whole -------------------------------------------------------------------------------


def test_the_image_is_the_last_option_and_our_init_what_runs() -> None:
    argv = arguments(container())
    assert argv[0] == "podman"
    assert argv[-3:] == ["--rootfs", "/s/root", INIT_PATH]


def test_an_entrypoint_stands_before_our_init() -> None:
    argv = arguments(container(entrypoint=("/entry", "--flag", "a b")))
    assert argv[-5:] == ["/s/root", "/entry", "--flag", "a b", INIT_PATH]


def test_the_user_is_the_user() -> None:
    argv = arguments(container(ids=(1000, 1001)))
    assert values(argv, "--user") == ["1000:1001"]
    assert values(argv, "--uidmap") == ["1000:0:1"]
    assert values(argv, "--gidmap") == ["1001:0:1"]


def test_only_a_container_that_must_not_be_written_is_read_only() -> None:
    assert "--read-only" in arguments(container(writable=False))
    assert "--read-only" not in arguments(container())


@pytest.mark.parametrize("option", ["-e", "--env", "--env-file", "--annotation", "--hooks-dir"])
def test_no_option_carries_what_the_configuration_has(option: str) -> None:
    full = container(annotations={"a": "1"}, oci_hooks=[{"stages": ["prestart"]}])
    assert not [word for word in arguments(full) if word.split("=")[0] == option]


def test_a_device_whose_name_podmans_read_differently_is_a_mount() -> None:
    argv = arguments(container(devices=("/dev/a,b", "nvidia.com/gpu=all")))
    assert values(argv, "--device") == ["nvidia.com/gpu=all"]
    [row] = [r for r in csv.reader(values(argv, "--mount")) if "source=/dev/a,b" in r]
    assert {"type=bind", "destination=/dev/a,b", "dev"} <= set(row)


# ---- mounts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["/a b", "/a,b", '/a"b', "/a\nb", "/a'b", "/a=b,c=d", '/",ro,"'])
def test_odd_names_stay_one_field(name: str) -> None:
    row = fields(NodeMount("bind", name, "/to", ()))
    assert row[:3] == ["type=bind", f"source={name}", "destination=/to"]


@given(PRINTABLE, PRINTABLE)
def test_no_name_adds_an_option(source: str, target: str) -> None:
    argv = podman.arguments(PATHS, container(NodeMount("bind", source, target, ())))
    rows = [
        next(csv.reader(io.StringIO(text, newline=""), strict=True))
        for text in values(argv, "--mount")
    ]
    # the engine's own mounts come first, and may be at the same place
    assert rows[-1] == [
        *("type=bind", f"source={source}", f"destination={target}", "bind-propagation=rslave")
    ]


def test_a_mount_is_recursive_and_gets_what_the_host_mounts_later() -> None:
    assert options() == {"bind-propagation=rslave"}


@pytest.mark.parametrize(
    "flag", ["private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable"]
)
def test_propagation_is_the_users_word(flag: str) -> None:
    assert options(flag) == {f"bind-propagation={flag}"}


@pytest.mark.parametrize("flag", ["ro", "rw", "nosuid", "nodev", "noexec"])
def test_flags_are_passed_on(flag: str) -> None:
    assert options(flag) == {flag, "bind-propagation=rslave"}


def test_bind_means_without_what_is_mounted_below() -> None:
    assert "bind-nonrecursive=true" in options("bind")
    assert "bind-nonrecursive=true" not in options("rbind")


def test_flags_that_only_mean_something_to_others_are_dropped() -> None:
    assert options("x-create=dir") == {"bind-propagation=rslave"}


def test_a_squashfs_mount_is_read_only() -> None:
    assert "ro" in options(kind="squashfs")


def test_a_tmpfs_has_size_and_mode_in_podmans_words() -> None:
    row = fields(NodeMount("tmpfs", "", "/to", ("size=1G", "mode=0700", "noexec")))
    assert row == [
        "type=tmpfs",
        "destination=/to",
        "tmpfs-size=1G",
        "tmpfs-mode=0700",
        "noexec",
    ]


# ---- the configuration ------------------------------------------------------------------------


def configuration(given_container: Parts, env: dict[str, str]) -> dict[str, dict[str, object]]:
    return tomllib.loads(podman.configuration(PATHS, given_container, env))


@given(st.dictionaries(st.from_regex(r"[A-Z_]+", fullmatch=True), PRINTABLE))
def test_the_configuration_is_toml_with_every_value_whole(variables: dict[str, str]) -> None:
    found = configuration(container(annotations=variables), variables)["containers"]
    assert found["env"] == [f"{k}={v}" for k, v in sorted(variables.items())]
    assert found["annotations"] == found["env"]


def test_a_carriage_return_survives() -> None:
    assert configuration(container(), {"A": "x\r\ny\r"})["containers"]["env"] == ["A=x\r\ny\r"]


def test_hooks_are_files_of_the_session_in_their_order() -> None:
    hooks: list[HookFile] = [
        {"hook": {"path": f"/{number}"}, "stages": ["prestart"]} for number in range(11)
    ]
    prepare, _create = podman.creation(PATHS, container(oci_hooks=hooks), {}, ME)
    files = [arguments for name, arguments in prepare if name == "file"]
    written = [(path, text) for path, text in files if path.startswith("/s/hooks.d/")]
    assert [json.loads(text) for _path, text in sorted(written)] == hooks
    assert configuration(container(oci_hooks=hooks), {})["engine"]["hooks_dir"] == ["/s/hooks.d"]


def test_the_storage_configuration_is_toml_and_below_the_session() -> None:
    storage = tomllib.loads(podman.STORAGE_CONFIGURATION)["storage"]
    assert storage["driver"] == "vfs"
    assert {storage["graphroot"], storage["runroot"]} == {"/proc/1/cwd/store", "/proc/1/cwd/run"}


def test_podmans_own_environment_points_into_the_session() -> None:
    variables = podman.program_environment(PATHS, 1000, 1001)
    for name in ("HOME", "XDG_RUNTIME_DIR", "TMPDIR", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"):
        assert variables[name].startswith("/s/")
    assert variables["_CONTAINERS_ROOTLESS_UID"] == "1000"
    assert variables["_CONTAINERS_ROOTLESS_GID"] == "1001"
