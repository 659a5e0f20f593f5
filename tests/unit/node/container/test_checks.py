"""Checks that only the node can make, on real files and devices."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from container_engine.base.errors import LaunchError
from container_engine.node.container.checks import (
    check_image,
    check_site_programs,
)
from container_engine.node.plan_types import Mount
from tests.unit.node.plans import device, mount, resolve_devices, resolve_mounts, variable


def superblock(used: int) -> bytes:
    return b"hsqs" + bytes(36) + used.to_bytes(8, "little") + bytes(48)


def refusal(path: Path) -> str:
    with pytest.raises(LaunchError) as caught:
        check_image(str(path))
    return str(caught.value)


def test_a_whole_squashfs_file_is_accepted(tmp_path: Path) -> None:
    image = tmp_path / "i.sqsh"
    image.write_bytes(superblock(200) + bytes(104))
    check_image(str(image))
    image.write_bytes(superblock(200) + bytes(4096))
    check_image(str(image))


def test_a_start_that_is_decided_again_opens_no_image_that_is_as_it_was(tmp_path: Path) -> None:
    image = tmp_path / "i.sqsh"
    image.write_bytes(superblock(200) + bytes(104))
    script = (
        "import os, sys; from container_engine.node.container.checks import check_image\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, about: event == 'open' and opened.append(about[0]))\n"
        "for chosen in (lambda: 0, lambda: 0, lambda: os.utime(sys.argv[1], ns=(1, 1))):\n"
        "    chosen(); check_image(sys.argv[1]); print(opened.count(sys.argv[1]))\n"
    )
    argv = [sys.executable, "-c", script, str(image)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, text=True, timeout=60)
    assert done.stdout.split() == ["1", "1", "2"]


def test_an_image_that_was_whole_and_is_cut_short_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "i.sqsh"
    image.write_bytes(superblock(200) + bytes(104))
    check_image(str(image))
    os.truncate(image, 199)
    assert "is cut short: it has 199 bytes" in refusal(image)


def test_an_image_that_is_cut_short_says_by_how_much(tmp_path: Path) -> None:
    image = tmp_path / "i.sqsh"
    image.write_bytes(superblock(200) + bytes(103))
    assert refusal(image) == (
        f"image '{image}': is cut short: it has 199 bytes and should have 200"
    )


@pytest.mark.parametrize("content", [b"", b"hsqs", bytes(96), b"#!/bin/sh\n" * 20])
def test_a_file_that_is_not_squashfs_is_refused(tmp_path: Path, content: bytes) -> None:
    image = tmp_path / "i.sqsh"
    image.write_bytes(content)
    assert refusal(image) == f"image '{image}': is not a SquashFS file"


def test_the_kernels_reason_is_reported_for_images(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == f"image '{tmp_path}/none': No such file or directory"
    assert refusal(tmp_path) == f"image '{tmp_path}': Is a directory"


# ---- mounts ----------------------------------------------------------------------------------


def mounts_refusal(*mounts: Mount) -> str:
    unmet: list[LaunchError] = []
    resolve_mounts(mounts, {}, unmet)
    return "\n".join(map(str, unmet))


def test_a_source_that_may_be_missing_is_left_out(tmp_path: Path) -> None:
    unmet: list[LaunchError] = []
    given = [
        mount(f"{tmp_path}/none", "/x", "nofail"),
        mount(str(tmp_path), "/y", "nofail"),
    ]
    assert [bind.target for bind in resolve_mounts(given, {}, unmet)] == ["/y"]
    assert unmet == []
    given = [mount(str(tmp_path), "/proc", "nofail")]
    resolve_mounts(given, {}, unmet)
    assert len(unmet) == 1


@pytest.mark.parametrize("origin", ["--container-mounts", "PYXIS_CONTAINER_MOUNTS", "e.toml:3"])
def test_a_source_that_a_comma_has_torn_gets_a_hint(tmp_path: Path, origin: str) -> None:
    (tmp_path / "run,1").mkdir()
    unmet: list[LaunchError] = []
    for name in ("run", "ru"):
        torn = mount(f"{tmp_path}/{name}", "/x")
        torn["from"] = origin
        resolve_mounts([torn], {}, unmet)
    hint = r"on the command line a comma separates mounts: one inside a path is written '\,'"
    assert [one.hint for one in unmet] == [hint if origin != "e.toml:3" else None, None]


def test_mounts_become_literal(tmp_path: Path) -> None:
    source, target = [variable("TOP"), "/x"], ["/m/", variable("N")]
    (tmp_path / "x").mkdir()
    [bind] = resolve_mounts([mount(source, target, "ro")], {"TOP": str(tmp_path), "N": "7"}, [])
    assert (bind.kind, bind.source, bind.target, list(bind.options)) == (
        "bind",
        f"{tmp_path}/x",
        "/m/7",
        ["ro"],
    )


def test_all_missing_sources_are_named_at_once(tmp_path: Path) -> None:
    message = mounts_refusal(mount("/no/a", "/a"), mount(str(tmp_path), "/b"), mount("/no/c", "/c"))
    assert message == (
        "/e.toml:4: mount source '/no/a': does not exist\n"
        "/e.toml:4: mount source '/no/c': does not exist"
    )


def test_a_link_to_nowhere_does_not_exist(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    assert mounts_refusal(mount(str(link), "/a")).endswith("does not exist")


def test_a_squashfs_source_is_looked_into(tmp_path: Path) -> None:
    file = tmp_path / "it's: odd"
    file.write_text("text")
    message = mounts_refusal(mount(str(file), "/a", kind="squashfs"))
    assert message == f"/e.toml:4: mount source '{file}': is not a SquashFS file"


@pytest.mark.parametrize(
    "target", ["/.container-engine", "/.container-engine/lib/x", "/dev/.ce-init"]
)
def test_where_hooks_put_their_files_nothing_is_mounted(target: str) -> None:
    assert "cannot be replaced" in mounts_refusal(mount("/usr", target))


def test_a_tmpfs_has_no_source() -> None:
    [bind] = resolve_mounts([mount("", "/t", kind="tmpfs")], {}, [])
    assert bind.target == "/t"


@pytest.mark.parametrize(
    "target",
    [
        *("/", "/proc", "/dev/", "//sys", "/x/../proc", "/.."),
        *("/proc/self/root/bin", "/proc/thread-self", "/proc/1/root", "/dev/fd/3", "/dev/stdin"),
    ],
)
def test_a_deferred_destination_may_not_replace_the_systems(target: str) -> None:
    unmet: list[LaunchError] = []
    resolve_mounts([mount("/usr", [variable("T")])], {"T": target}, unmet)
    assert [(error.see, str(error).endswith("cannot be replaced")) for error in unmet] == [
        ("mount-destination", True)
    ]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("/x/" + "é" * 128, "has a name of 256 bytes; Linux allows 255"),
        ("/" + "/".join(["y" * 255] * 16), "has a path of 4096 bytes; Linux allows 4095"),
    ],
)
def test_a_deferred_destination_may_not_be_longer_than_a_path(target: str, why: str) -> None:
    unmet: list[LaunchError] = []
    resolve_mounts([mount("/usr", [variable("T")])], {"T": target}, unmet)
    assert [(error.see, error.reason) for error in unmet] == [("mount-destination", why)]


@pytest.mark.parametrize("target", ["/proc/nowhere", "/sys/fs/nowhere"])
def test_in_the_kernels_file_systems_a_destination_must_be_there(target: str) -> None:
    refusal = mounts_refusal(mount("/usr", target))
    assert f"'{target}': does not exist on this node, and only the kernel makes" in refusal


def test_a_destination_in_the_kernels_file_systems_may_be_there_or_on_another_mount() -> None:
    unmet: list[LaunchError] = []
    targets = ("/sys/fs", "/sys/fs/new", "/proc/cpuinfo")
    resolve_mounts([mount("/usr", target) for target in targets], {}, unmet)
    assert unmet == []


def test_a_destination_cannot_leave_the_root() -> None:
    [bind] = resolve_mounts([mount("/usr", "/../../x/../y")], {}, [])
    assert bind.target == "/y"


# ---- devices ---------------------------------------------------------------------------------


def test_devices_are_looked_at_and_cdi_names_are_not_paths() -> None:
    names = resolve_devices(
        [device("/dev/null"), device("nvidia.com/gpu=all", cdi=True)], ["*"], {}, []
    )
    assert names == ["/dev/null"]


def test_a_file_that_is_not_a_device_is_refused_with_all_others(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    unmet: list[LaunchError] = []
    resolve_devices([device(str(fifo)), device("/dev/none")], ["*"], {}, unmet)
    assert list(map(str, unmet)) == [
        f"/e.toml:5: device '{fifo}': is not a device",
        "/e.toml:5: device '/dev/none': does not exist",
    ]


def test_a_device_with_a_colon_that_only_the_node_knows_is_refused_there() -> None:
    deferred = device(["/dev/", variable("D")])
    unmet: list[LaunchError] = []
    assert resolve_devices([deferred], ["*"], {"D": "a:b"}, unmet) == []
    assert "'/dev/a:b': Podman does not accept a device with a colon" in str(unmet[0])


def test_a_deferred_device_is_the_nodes() -> None:
    names = resolve_devices([device(["/dev/", variable("D")])], ["*"], {"D": "null"}, [])
    assert names == ["/dev/null"]


def test_a_deferred_device_cannot_leave_the_directory_that_the_site_offers() -> None:
    deferred = device(["/dev/shm/", variable("D")])
    unmet: list[LaunchError] = []
    assert resolve_devices([deferred], ["/dev/shm/*"], {"D": "../null"}, unmet) == []
    assert [(str(lack), lack.see) for lack in unmet] == [
        (
            "/e.toml:5: device '/dev/shm/../null': this site does not offer it",
            "device-not-offered",
        )
    ]


def test_a_program_of_the_site_that_this_node_lacks_starts_nothing() -> None:
    check_site_programs("", "")
    check_site_programs("/bin/sh", "")
    with pytest.raises(LaunchError, match="runtime of the site: '/etc/passwd' is not a program"):
        check_site_programs("/bin/sh", "/etc/passwd")
