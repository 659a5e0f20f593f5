"""CDI files for NVIDIA's driver where distributions, installers and clouds put it."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from container_engine.cli.main import main

Capture = pytest.CaptureFixture[str]
VERSION = "580.159.04"
TRIPLE = f"{os.uname().machine}-linux-gnu"
USUAL = f"/usr/lib/{TRIPLE}"
ODD = "/usr/local/nvidia/lib64"
WRAPPER = '#!/bin/sh\n# sets things up\nexec /usr/local/nvidia/bin/{0} "$@"\n'


class Node:
    """The root of a system with NVIDIA's GPUs, made of null devices and empty libraries."""

    def __init__(self, root: Path, capture: Capture) -> None:
        self.root, self._capture = root, capture
        self.warnings: list[str] = []
        for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
            self.device(f"/dev/{name}")

    def path(self, path: str) -> Path:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def device(self, path: str, minor: int = 3) -> None:
        os.mknod(self.path(path), 0o20666, os.makedev(1, minor))

    def text(self, path: str, text: str = "") -> None:
        self.path(path).write_text(text)

    def program(self, path: str) -> None:
        self.path(path).write_bytes(b"\x7fELF\2\1\1")

    def link(self, path: str, target: str) -> None:
        self.path(path).symlink_to(target)

    def libraries(self, directory: str, version: str = VERSION) -> None:
        """Add two libraries of a driver to a directory, with the links of its installer."""
        for stem in ("libcuda", "libnvidia-ml"):
            build(self.path(f"{directory}/{stem}.so.{version}"), f"{stem}.so.1")
            self.path(f"{directory}/{stem}.so.1").unlink(missing_ok=True)
            self.link(f"{directory}/{stem}.so.1", f"{stem}.so.{version}")

    def ldconfig(self, *directories: str) -> None:
        self.text("/etc/ld.so.conf", "".join(f"{directory}\n" for directory in directories))
        subprocess.run(["/sbin/ldconfig", "-r", self.root], check=True)

    def generate(self, *words: str, kind: str = "nvidia") -> dict[str, Any]:
        assert main(["cdi", "generate", kind, "--root", str(self.root), *words]) == 0
        out, err = self._capture.readouterr()
        self.warnings = [line.removeprefix("ce: warning: cdi: ") for line in err.splitlines()]
        spec: dict[str, Any] = json.loads(out)
        return spec

    def mounts(self) -> dict[str, str]:
        """Return the sources of the mounts of a new file, by their targets."""
        mounts = self.generate()["containerEdits"]["mounts"]
        return {mount["containerPath"]: mount["hostPath"] for mount in mounts}

    def check(self, file: Path) -> list[str]:
        """Return the differences that are printed for a file."""
        code = main(
            ["cdi", "generate", "nvidia", "--root", str(self.root), "--check", "-o", str(file)]
        )
        out, err = self._capture.readouterr()
        lines = [line for line in err.splitlines() if not line.startswith(("ce: hint", "ce: see"))]
        assert (code, bool(out)) == (1 if lines else 0, not lines)
        heads = (f"ce: error: cdi: CDI file '{file}': ", "ce: also: ")
        return [line.removeprefix(heads[0]).removeprefix(heads[1]) for line in lines]


def build(path: Path, soname: str) -> None:
    argv = ["gcc", "-shared", "-nostdlib", "-x", "c", "-", "-o", str(path), f"-Wl,-soname,{soname}"]
    subprocess.run(argv, input="", check=True, text=True)


@pytest.fixture
def node(tmp_path: Path, capsys: Capture) -> Node:
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    return Node(tmp_path / "node", capsys)


# ---- libraries -------------------------------------------------------------------------------


def test_a_driver_that_only_the_loaders_cache_knows_is_found(node: Node, capsys: Capture) -> None:
    node.libraries(ODD)
    assert main(["cdi", "generate", "nvidia", "--root", str(node.root)]) == 1
    assert "nor in a directory that /etc/ld.so.cache knows" in capsys.readouterr().err
    node.ldconfig(ODD)
    assert {target: source for target, source in node.mounts().items() if "cuda" in target} == {
        f"{ODD}/libcuda.so": f"{ODD}/libcuda.so.{VERSION}",
        f"{ODD}/libcuda.so.1": f"{ODD}/libcuda.so.1",
        f"{ODD}/libcuda.so.{VERSION}": f"{ODD}/libcuda.so.{VERSION}",
    }
    assert node.warnings == []


@pytest.mark.parametrize("with_cache", [False, True])
def test_a_driver_behind_links_and_wrapper_scripts_is_found(node: Node, with_cache: bool) -> None:
    """As on a cloud's machines with H200s."""
    node.path(f"{USUAL}/x")
    node.link("/lib", "usr/lib")
    node.libraries(ODD)
    for name in sorted(os.listdir(node.path(ODD))):
        node.link(f"/lib/{TRIPLE}/{name}", f"{ODD}/{name}")
    build(node.path(f"{ODD}/libcudadebugger.so.{VERSION}"), "libcudadebugger.so.1")
    for name in ("nvidia-smi", "nvidia-cuda-mps-control"):
        node.program(f"/usr/local/nvidia/bin/{name}")
        node.text(f"/usr/bin/{name}", WRAPPER.format(name))
    if with_cache:
        node.ldconfig(ODD)
    mounts = node.mounts()
    assert mounts["/usr/bin/nvidia-smi"] == "/usr/local/nvidia/bin/nvidia-smi"
    assert mounts["/usr/bin/nvidia-cuda-mps-control"] == (
        "/usr/local/nvidia/bin/nvidia-cuda-mps-control"
    )
    assert mounts[f"{USUAL}/libcuda.so.1"] == f"{USUAL}/libcuda.so.1"
    assert mounts[f"{USUAL}/libcuda.so"] == f"{USUAL}/libcuda.so.{VERSION}"
    # each library once, and one that has no link from where it is
    assert f"{ODD}/libcuda.so.1" not in mounts
    assert (f"{ODD}/libcudadebugger.so.{VERSION}" in mounts) == with_cache
    assert node.warnings == []


def test_a_driver_behind_alternatives_is_found_with_what_has_no_link(node: Node) -> None:
    """As Debian's packages have it."""
    current = f"{USUAL}/nvidia/current"
    node.libraries(current)
    build(node.path(f"{current}/libnvidia-ptxjitcompiler.so.{VERSION}"), "x")
    node.link("/etc/alternatives/libcuda.so.1", f"{current}/libcuda.so.1")
    node.link(f"{USUAL}/libcuda.so.1", "/etc/alternatives/libcuda.so.1")
    mounts = node.mounts()
    assert mounts[f"{USUAL}/libcuda.so.1"] == f"{USUAL}/libcuda.so.1"
    ptx = f"{current}/libnvidia-ptxjitcompiler.so.{VERSION}"
    assert mounts[ptx] == ptx


def test_a_link_that_leads_nowhere_is_no_library(node: Node) -> None:
    node.libraries(USUAL)
    node.link(f"{USUAL}/libnvidia-gone.so.1", f"libnvidia-gone.so.{VERSION}")
    assert f"{USUAL}/libnvidia-gone.so.1" not in node.mounts()


def test_libraries_of_an_older_driver_and_of_container_tools_are_left_out(node: Node) -> None:
    node.libraries(USUAL, "535.1.1")
    node.libraries(USUAL)
    node.text(f"{USUAL}/libnvidia-container.so.1.17.8")
    node.text("/sys/module/nvidia/version", f"{VERSION}\n")
    mounts = node.mounts()
    assert f"{USUAL}/libcuda.so.{VERSION}" in mounts
    assert not [path for path in mounts if "535" in path or "container" in path]
    assert node.warnings == []


def test_libraries_that_do_not_fit_the_kernels_driver_are_named(node: Node) -> None:
    node.libraries(USUAL)
    said = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  575.57.08  Sat May 24\n"
    node.text("/proc/driver/nvidia/version", said)
    node.generate()
    assert node.warnings == [
        f"the kernel runs version 575.57.08 of the driver, and the libraries on this node have"
        f" version {VERSION}: nothing will find a GPU until both are the same"
    ]


def test_names_that_programs_ask_for_are_made_where_the_node_lacks_them(node: Node) -> None:
    node.libraries(USUAL)
    other = ("allocator", "opticalflow", "vulkan-producer")
    files = ["libGLX_nvidia", "vdpau/libvdpau_nvidia", *(f"libnvidia-{name}" for name in other)]
    for stem in files:
        node.text(f"{USUAL}/{stem}.so.{VERSION}")
    mounts = node.mounts()
    made = {path.removeprefix(f"{USUAL}/"): mounts[path] for path in mounts if path != mounts[path]}
    assert made == {
        "libcuda.so": f"{USUAL}/libcuda.so.{VERSION}",
        "libGLX_indirect.so.0": f"{USUAL}/libGLX_nvidia.so.{VERSION}",
        "libnvidia-opticalflow.so": f"{USUAL}/libnvidia-opticalflow.so.{VERSION}",
        "libnvidia-vulkan-producer.so": f"{USUAL}/libnvidia-vulkan-producer.so.{VERSION}",
        "gbm/nvidia-drm_gbm.so": f"{USUAL}/libnvidia-allocator.so.{VERSION}",
    }
    assert f"{USUAL}/vdpau/libvdpau_nvidia.so.{VERSION}" in mounts


# ---- programs and the rest -------------------------------------------------------------------


def test_a_script_whose_program_is_nowhere_is_left_out_and_named(node: Node) -> None:
    node.libraries(USUAL)
    node.text("/usr/bin/nvidia-smi", WRAPPER.format("nvidia-smi"))
    node.program("/usr/bin/nvidia-debugdump")
    assert [path for path in node.mounts() if path.startswith("/usr/bin/")] == [
        "/usr/bin/nvidia-debugdump"
    ]
    assert node.warnings == [
        "/usr/bin/nvidia-smi is left out: it is a script, and the program that it runs was not"
        " found"
    ]


@pytest.mark.parametrize("place", ["/opt/driver/bin", "/usr/local/bin", "/usr/local/nvidia/bin"])
def test_a_program_is_in_the_path_of_containers(node: Node, place: str) -> None:
    node.libraries(ODD)
    node.ldconfig(ODD)
    node.program(f"{place}/nvidia-smi")
    if place.startswith("/opt"):
        node.text(
            "/usr/sbin/nvidia-smi", f"#!/bin/bash\n{place}/nvidia-smi-not; {place}/nvidia-smi $*"
        )
    inside = {"/opt/driver/bin": "/usr/sbin", "/usr/local/bin": "/usr/local/bin"}
    wanted = f"{inside.get(place, '/usr/bin')}/nvidia-smi"
    assert node.mounts()[wanted] == f"{place}/nvidia-smi"


def test_firmware_sockets_and_settings_come_where_they_are(node: Node) -> None:
    node.libraries(USUAL)
    bare = node.mounts()
    files = {
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin": "",
        "/run/nvidia-persistenced/socket": "",
        "/var/run/nvidia-fabricmanager/socket": "",
        "/tmp/nvidia-mps/control": "/tmp/nvidia-mps",
        "/usr/local/share/glvnd/egl_vendor.d/10_nvidia.json": "",
        "/etc/vulkan/icd.d/nvidia_icd.json": "",
        "/etc/OpenCL/vendors/nvidia.icd": "",
    }
    for path in files:
        node.text(path)
    node.text("/lib/firmware/nvidia/535.1.1/gsp_ga10x.bin")
    sources = {mount or path for path, mount in files.items()}
    mounts = {target: source for target, source in node.mounts().items() if target not in bare}
    assert set(mounts.values()) == sources
    assert mounts["/usr/share/glvnd/egl_vendor.d/10_nvidia.json"].startswith("/usr/local/share/")
    entries = node.generate()["containerEdits"]["mounts"]
    writable = [entry["hostPath"] for entry in entries if "ro" not in entry["options"]]
    assert all(path.startswith(("/run/", "/var/run/", "/tmp/")) for path in writable)
    assert len(writable) == 3


# ---- devices ---------------------------------------------------------------------------------


def nodes(spec: dict[str, Any]) -> dict[str, list[str]]:
    return {
        device["name"]: [entry["path"] for entry in device["containerEdits"]["deviceNodes"]]
        for device in spec["devices"]
    }


def known(node: Node, bus: str, minor: int) -> None:
    text = f"Model: \t\t GPU\nGPU UUID: \t GPU-{bus}\nDevice Minor: \t {minor}\n"
    node.text(f"/proc/driver/nvidia/gpus/0000:{bus}:00.0/information", text)


def test_gpus_are_counted_as_nvidia_smi_counts_them(node: Node) -> None:
    node.libraries(USUAL)
    node.device("/dev/nvidia1")
    known(node, "c1", 0)
    known(node, "41", 1)
    for name in ("card3", "renderD131"):
        node.device(f"/dev/dri/{name}")
        node.path(f"/sys/bus/pci/devices/0000:41:00.0/drm/{name}/x")
    assert nodes(node.generate()) == {
        "0": ["/dev/nvidia1", "/dev/dri/card3", "/dev/dri/renderD131"],
        "1": ["/dev/nvidia0"],
        "GPU-41": ["/dev/nvidia1", "/dev/dri/card3", "/dev/dri/renderD131"],
        "GPU-c1": ["/dev/nvidia0"],
        "all": ["/dev/nvidia1", "/dev/dri/card3", "/dev/dri/renderD131", "/dev/nvidia0"],
    }


def test_a_device_without_which_cuda_does_not_start_is_named(node: Node) -> None:
    node.libraries(USUAL)
    node.path("/dev/nvidia-uvm").unlink()
    node.generate()
    assert node.warnings == [
        "there is no /dev/nvidia-uvm, which CUDA needs: run nvidia-modprobe -u -c 0, and this once"
        " more"
    ]


def test_a_divided_gpu_is_given_by_its_parts_with_their_capabilities(node: Node) -> None:
    node.libraries(USUAL)
    known(node, "41", 0)
    for path, number in (
        ("gi10", 90),
        ("gi10/ci0", 91),
        ("gi9", 81),
        ("gi9/ci0", 82),
        ("gi9/ci1", 83),
    ):
        access = f"DeviceFileMinor: {number}\nDeviceFileMode: 292\n"
        node.text(f"/proc/driver/nvidia/capabilities/gpu0/mig/{path}/access", access)
        node.device(f"/dev/nvidia-caps/nvidia-cap{number}")
    found = nodes(node.generate())
    caps = {
        name: [path.rpartition("cap")[2] for path in paths[1:]] for name, paths in found.items()
    }
    assert caps == {
        "0:0": ["81", "82"],
        "0:1": ["81", "83"],
        "0:2": ["90", "91"],
        "all": ["81", "82", "83", "90", "91"],
    }
    assert {paths[0] for paths in found.values()} == {"/dev/nvidia0"}


def test_channels_of_imex_are_a_kind_of_their_own(node: Node) -> None:
    node.libraries(USUAL)
    for number in (10, 2):
        node.device(f"/dev/nvidia-caps-imex-channels/channel{number}")
    assert "channel" not in json.dumps(node.generate())
    spec = node.generate(kind="nvidia-imex")
    assert spec["kind"] == "nvidia.com/imex-channel"
    assert list(nodes(spec)) == ["2", "10", "all"]
    assert nodes(spec)["10"] == ["/dev/nvidia-caps-imex-channels/channel10"]


# ---- files that exist ------------------------------------------------------------------------

# a part of what nvidia-ctk 1.17 writes
OF_NVIDIA = """\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  - path: /dev/nvidia-uvm
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - nvidia-cdi-hook
    - update-ldcache
    - --folder
    - {0}
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: {0}/libcuda.so.{1}
    hostPath: {0}/libcuda.so.{1}
    options: [ro, nosuid, nodev, rbind, rprivate]
  - containerPath: {0}/libnvidia-ml.so.{1}
    hostPath: {0}/libnvidia-ml.so.{1}
    options: [ro, nosuid, nodev, rbind, rprivate]
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
kind: nvidia.com/gpu
"""


@pytest.fixture
def files(node: Node) -> Sequence[Path]:
    """Return files for a node, one of ours and one of NVIDIA's, that still hold."""
    node.libraries(USUAL)
    ours, nvidias = (node.root.parent / f"cdi/nvidia.{end}" for end in ("json", "yaml"))
    generate = ["cdi", "generate", "nvidia", "--root", str(node.root), "-o", str(ours)]
    assert main(generate) == 0  # in a directory that it makes
    assert ours.parent.stat().st_mode & 0o777 == 0o755
    nvidias.write_text(OF_NVIDIA.format(USUAL, VERSION))
    assert [node.check(file) for file in (ours, nvidias)] == [[], []]
    return ours, nvidias


def test_a_driver_that_was_updated_is_noticed(node: Node, files: Sequence[Path]) -> None:
    for path in node.path(USUAL).glob(f"*.{VERSION}"):
        path.unlink()
    node.libraries(USUAL, "590.1.1")
    for file in files:
        gone, new = node.check(file)
        assert gone == (
            f"'{USUAL}/libcuda.so.{VERSION}' and 1 more do not exist, and the driver has version"
            " 590.1.1 now"
        )
        assert new == (
            f"it lacks '{USUAL}/libcuda.so.590.1.1' and 1 more of the driver, which has version"
            " 590.1.1 now"
        )


def test_a_driver_beside_which_the_old_one_stayed_is_noticed(
    node: Node, files: Sequence[Path]
) -> None:
    node.libraries(USUAL, "590.1.1")
    node.text("/sys/module/nvidia/version", "590.1.1\n")
    for file in files:
        assert [line.partition(" '")[0] for line in node.check(file)] == ["it lacks"]


def test_devices_that_came_went_or_have_other_numbers_are_noticed(
    node: Node, files: Sequence[Path]
) -> None:
    ours, nvidias = files
    node.device("/dev/nvidia-modeset")
    node.path("/dev/nvidiactl").unlink()
    node.device("/dev/nvidiactl", 5)
    assert node.check(ours) == [
        "device node /dev/nvidiactl is 1:5 now, not 1:3",
        "it lacks /dev/nvidia-modeset",
    ]
    assert node.check(nvidias) == ["it lacks /dev/nvidia-modeset"]
    node.path("/dev/nvidia0").rename(node.path("/dev/nvidia1"))
    assert node.check(nvidias) == [
        "device node /dev/nvidia0: No such file or directory",
        *("it lacks /dev/nvidia-modeset", "it lacks /dev/nvidia1"),
    ]


def test_a_gpu_that_was_replaced_or_moved_is_noticed(node: Node, files: Sequence[Path]) -> None:
    ours, _nvidias = files
    node.device("/dev/nvidia1")
    known(node, "41", 0)
    known(node, "c1", 1)
    main(["cdi", "generate", "nvidia", "--root", str(node.root), "-o", str(ours)])
    assert node.check(ours) == []
    node.path("/proc/driver/nvidia/gpus/0000:41:00.0/information").unlink()
    node.path("/proc/driver/nvidia/gpus/0000:41:00.0").rmdir()
    known(node, "e1", 0)
    assert node.check(ours) == [
        *("device '0' is /dev/nvidia1 now", "device '1' is /dev/nvidia0 now"),
        "device 'GPU-41' is not on this node",
    ]


def test_a_daemon_that_does_not_run_is_no_difference(node: Node, files: Sequence[Path]) -> None:
    ours, _nvidias = files
    node.text("/run/nvidia-persistenced/socket")
    main(["cdi", "generate", "nvidia", "--root", str(node.root), "-o", str(ours)])
    assert "persistenced" in ours.read_text()
    node.path("/run/nvidia-persistenced/socket").unlink()
    assert node.check(ours) == []


def test_the_sites_files_are_checked_if_none_is_named(
    node: Node, files: Sequence[Path], capsys: Capture
) -> None:
    ours, nvidias = files
    nvidias.unlink()
    site = ours.parent.parent / "config.toml"
    site.write_text(f'cdi_dirs = ["{ours.parent}"]\n')
    check = ["--site", str(site), "cdi", "generate", "--check", "--root", str(node.root)]
    assert main([*check, "nvidia"]) == 0
    assert capsys.readouterr().out == f"{ours} has what is on this node\n"
    ours.unlink()
    assert main([*check, "nvidia"]) == 1
    assert f"no file in {ours.parent} has devices of nvidia.com/gpu" in capsys.readouterr().err
