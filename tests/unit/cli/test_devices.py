"""CDI files from what a node offers: device nodes made with mknod stand in for GPUs."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from container_engine.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Return the root of a system whose devices can be made as null devices."""
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    return tmp_path / "node"


def make(node: Path, path: str, minor: int = 3, gid: int = 0) -> None:
    place = node / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(place, 0o20666, os.makedev(1, minor))
    os.chown(place, 0, gid)


def gpu(node: Path, render: int, card: int, vendor: str = "0x1002", gid: int = 0) -> None:
    make(node, f"/dev/dri/renderD{render}", gid=gid)
    make(node, f"/dev/dri/card{card}", gid=gid)
    device = node / f"sys/class/drm/renderD{render}/device"
    (device / f"drm/card{card}").mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")


def generated(capsys: Capture, *words: str) -> dict[str, Any]:
    assert main(["cdi", "generate", *words]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def paths(spec: dict[str, Any]) -> dict[str, list[str]]:
    return {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in spec["devices"]
    }


def test_slingshot_devices_are_named_by_their_numbers(node: Path, capsys: Capture) -> None:
    for number in (10, 2, 0):
        make(node, f"/dev/cxi{number}")
    spec = generated(capsys, "cxi", "--root", str(node))
    assert (spec["kind"], spec["cdiVersion"]) == ("hpe.com/cxi", "0.5.0")
    assert paths(spec) == {
        "0": ["/dev/cxi0"],
        "2": ["/dev/cxi2"],
        "10": ["/dev/cxi10"],
        "all": ["/dev/cxi0", "/dev/cxi2", "/dev/cxi10"],
    }
    first = spec["devices"][0]["containerEdits"]["deviceNodes"][0]
    assert first == {"path": "/dev/cxi0", "type": "c", "major": 1, "minor": 3}


def test_amd_gpus_come_with_their_card_and_kfd(node: Path, capsys: Capture) -> None:
    make(node, "/dev/kfd", gid=44)
    gpu(node, 128, 1, gid=105)
    gpu(node, 129, 0, vendor="0x10de")
    gpu(node, 130, 2, gid=105)
    spec = generated(capsys, "amd", "--root", str(node))
    assert paths(spec) == {
        "0": ["/dev/dri/renderD128", "/dev/dri/card1"],
        "1": ["/dev/dri/renderD130", "/dev/dri/card2"],
        "all": [
            "/dev/dri/renderD128",
            "/dev/dri/card1",
            "/dev/dri/renderD130",
            "/dev/dri/card2",
        ],
    }
    shared = spec["containerEdits"]
    assert [node["path"] for node in shared["deviceNodes"]] == ["/dev/kfd"]
    assert shared["additionalGids"] == [44, 105]
    assert spec["cdiVersion"] == "0.7.0"


def test_parts_of_divided_amd_gpus_are_counted_after_each_other(
    node: Path, capsys: Capture
) -> None:
    make(node, "/dev/kfd")
    # the GPU with the lower address has the higher numbers
    places = {128: 0x8500, 129: 0x8500, 130: 0x0500, 131: 0x0500}
    for number, place in places.items():
        properties = node / f"sys/class/kfd/kfd/topology/nodes/{number}/properties"
        properties.parent.mkdir(parents=True)
        properties.write_text(
            f"cpu_cores_count 0\nlocation_id {place}\ndomain 0\ndrm_render_minor {number}\n"
        )
    for number in (128, 130):
        gpu(node, number, number - 128)
    for number in (129, 131):
        make(node, f"/dev/dri/renderD{number}")
        part = node / f"sys/devices/platform/amdgpu_xcp_{number}"
        part.mkdir(parents=True)
        render = node / f"sys/class/drm/renderD{number}"
        render.mkdir()
        (render / "device").symlink_to(part)
    found = paths(generated(capsys, "amd", "--root", str(node)))
    first = {name: devices[0] for name, devices in found.items() if name != "all"}
    assert first == {str(i): f"/dev/dri/renderD{n}" for i, n in enumerate((130, 131, 128, 129))}


def driver(node: Path) -> None:
    """Add a driver's files as NVIDIA's installer writes them, and some other libraries."""
    place = node / f"usr/lib/{os.uname().machine}-linux-gnu"
    place.mkdir(parents=True)
    for name in ("libcuda.so.550.54.15", "libnvidia-gpucomp.so.550.54.15", "libnvidia-nvvm70.so.4"):
        (place / name).touch()
    for name in ("libcudart.so.12.4.99", "libc.so.6"):
        (place / name).touch()
    (place / "libcuda.so.1").symlink_to("libcuda.so.550.54.15")
    (place / "libcuda.so").symlink_to("libcuda.so.1")
    (node / "usr/bin").mkdir()
    (node / "usr/bin/nvidia-smi").write_bytes(b"\x7fELF")


def test_nvidia_gpus_come_with_the_files_of_their_driver(node: Path, capsys: Capture) -> None:
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm"):
        make(node, f"/dev/{name}")
    driver(node)
    # the driver knows a GPU that has no device file here, too
    for place, uuid, minor in (("41", "GPU-4f", 3), ("81", "GPU-5a", 7)):
        information = node / f"proc/driver/nvidia/gpus/0000:{place}:00.0/information"
        information.parent.mkdir(parents=True)
        text = f"Model: \t\t GPU\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        information.write_text(text)
    spec = generated(capsys, "nvidia", "--root", str(node))
    assert paths(spec) == {
        "0": ["/dev/nvidia0"],
        "1": ["/dev/nvidia3"],
        "GPU-4f": ["/dev/nvidia3"],
        "all": ["/dev/nvidia0", "/dev/nvidia3"],
    }
    shared = spec["containerEdits"]
    assert [node["path"] for node in shared["deviceNodes"]] == ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    mounts = [mount["containerPath"] for mount in shared["mounts"]]
    assert mounts == [mount["hostPath"] for mount in shared["mounts"]]
    assert [os.path.basename(path) for path in mounts] == [
        *("libcuda.so", "libcuda.so.1", "libcuda.so.550.54.15"),
        *("libnvidia-gpucomp.so.550.54.15", "libnvidia-nvvm70.so.4", "nvidia-smi"),
    ]


def test_a_node_with_gpus_of_nvidia_and_no_driver_gets_no_file(node: Path, capsys: Capture) -> None:
    make(node, "/dev/nvidia0")
    assert main(["cdi", "generate", "nvidia", "--root", str(node)]) == 1
    assert "libcuda.so.1 is in none of" in capsys.readouterr().err


def test_a_file_in_the_place_of_a_device_is_refused(node: Path, capsys: Capture) -> None:
    (node / "dev").mkdir(parents=True)
    (node / "dev/cxi0").touch()
    assert main(["cdi", "generate", "cxi", "--root", str(node)]) == 1
    assert "/dev/cxi0 is not a character device" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["cxi", "amd", "nvidia"])
def test_a_node_without_the_devices_gets_no_file(
    tmp_path: Path, capsys: Capture, kind: str
) -> None:
    file = tmp_path / "x.json"
    assert main(["cdi", "generate", kind, "--root", str(tmp_path), "-o", str(file)]) == 1
    assert "on this node" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def site(tmp_path: Path) -> Path:
    file = tmp_path / "config.toml"
    (tmp_path / "cdi").mkdir()
    file.write_text(f'cdi_dirs = ["{tmp_path}/cdi"]\nallowed_devices = ["hpe.com/cxi=0"]\n')
    return file


def test_what_was_generated_is_what_the_node_offers(
    node: Path, site: Path, capsys: Capture
) -> None:
    make(node, "/dev/cxi0")
    file = site.parent / "cdi/cxi.json"
    assert main(["cdi", "generate", "cxi", "--root", str(node), "-o", str(file)]) == 0
    assert file.stat().st_mode & 0o777 == 0o644
    assert main(["--site", str(site), "devices"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"cdi  hpe.com/cxi=0    {file}",
        f"cdi  hpe.com/cxi=all  {file}  (not for users at this site)",
    ]
    assert main(["--site", str(site), "devices", "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)["devices"]]
    assert names[:2] == ["hpe.com/cxi=0", "hpe.com/cxi=all"]


def test_a_bad_cdi_file_is_named(site: Path, capsys: Capture) -> None:
    file = site.parent / "cdi/bad.json"
    file.write_text("{")
    assert main(["--site", str(site), "devices"]) == 1
    assert capsys.readouterr().err.startswith(f"ce: error: devices: CDI file '{file}': ")


def test_a_host_without_devices_says_where_to_ask(tmp_path: Path, capsys: Capture) -> None:
    site = tmp_path / "config.toml"
    site.write_text(f'cdi_dirs = ["{tmp_path}"]\n')
    assert main(["--site", str(site), "devices"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("no GPUs or other devices for containers on this host")
    assert second.startswith(f"(no CDI files in {tmp_path}, and no device node ")
