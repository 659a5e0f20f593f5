"""Libraries of CDI devices in images of all kinds: programs and the loader find them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from container_engine.node.libraries.trees import ImageTree
from tests.integration.engine import ROOT, Engine
from tests.integration.libraries import Place, build, edf_text, probe, run
from tests.integration.prepared import LIBRARIES, image

VERSION = "580.1.2"
# no loader of an image searches it
INSIDE = "/usr/local/nvidia/lib64"
EVERY_NAME = ("libcuda.so", "libcuda.so.1", f"libcuda.so.{VERSION}")


def script(program: Path, kind: str) -> str:
    """Return commands that find the driver by each of its names, and print where."""
    tests = [f"test -e {INSIDE}/{name}" for name in EVERY_NAME]
    opened = [f"{program} {name}" for name in ("libcuda.so.1", "libcuda.so")]
    return " && ".join([*tests, *opened, *(["ldconfig -p"] if kind == "none" else [])])


def driver(place: Path, compiler: str) -> Path:
    """Build a stand-in for libcuda, without any of its links."""
    file = place / f"libcuda.so.{VERSION}"
    place.mkdir(parents=True, exist_ok=True)
    shared = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", file)
    run(compiler, *shared, ROOT / "tests/gpu/stand_in.c")
    return file


def mount(source: Path, name: str) -> dict[str, Any]:
    options = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
    return {"hostPath": str(source), "containerPath": f"{INSIDE}/{name}", "options": options}


def hook(name: str, *arguments: str) -> dict[str, Any]:
    path = "/usr/bin/nvidia-cdi-hook"  # a program that this node does not have
    args = ["nvidia-cdi-hook", name, *arguments]
    return {"hookName": "createContainer", "path": path, "args": args, "env": ["X=false"]}


def edits(source: Path, made_by: str) -> dict[str, Any]:
    """Return what our generator says of a driver, or what NVIDIA's does, or least of all."""
    if made_by == "ce":
        return {"mounts": [mount(source, name) for name in EVERY_NAME]}
    link = ("--link", f"libcuda.so.1::{INSIDE}/libcuda.so")
    hooks = [
        hook("create-symlinks", *link, "--link", "../card0::/dev/dri/by-path/pci-0-card"),
        hook("enable-cuda-compat", f"--host-driver-version={VERSION}"),
        hook("update-ldcache", "--folder", INSIDE),
        hook("disable-device-node-modification"),
    ]
    return {"mounts": [mount(source, source.name)], "hooks": hooks}


def gpus(place: Place, engine: Engine, edits: dict[str, Any]) -> Engine:
    """Return an engine on whose node a CDI file describes a device with these edits."""
    directory = place.dir / "cdi"
    directory.mkdir(exist_ok=True)
    devices = [{"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}}]
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    (directory / "gpu.json").write_text(json.dumps({**spec, "containerEdits": edits}))
    hooks = place.dir / "hooks.d"
    hooks.mkdir(exist_ok=True)
    return engine.with_site(f'cdi_dirs = ["{directory}"]\nhook_catalog = ["{hooks}"]')


def directories_of_triton(listed: str) -> list[str]:
    """Return where Triton looks for the driver, from what ldconfig -p printed."""
    found = [line.split()[-1] for line in listed.splitlines() if "libcuda.so.1" in line]
    return [path.rpartition("/")[0] for path in found]


def text(program: Path, more: str = "") -> str:
    return f'devices = ["nvidia.com/gpu=all"]\n{more}\n{edf_text(mounts=[program])}'


@pytest.mark.parametrize("more", ["", "writable = false"])
@pytest.mark.parametrize("made_by", ["ce", "nvidia-ctk"])
@pytest.mark.parametrize("kind", ["none", "odd", "musl"])
def test_the_libraries_of_a_cdi_device_are_found(
    engine: Engine, place: Place, kind: str, made_by: str, more: str
) -> None:
    compiler = "musl-gcc" if kind == "musl" else "gcc"
    there = gpus(place, engine, edits(driver(place.node / kind, compiler), made_by))
    program = probe(place.dir, compiler)
    where = (
        place.squash(place.variant("musl", place.musl)) if kind == "musl" else image(place, kind)
    )
    shutil.rmtree(place.dir / "trees/musl", ignore_errors=True)
    done = there.run(there.edf(text(program, more), where), "sh", "-c", script(program, kind))
    assert (done.stderr, done.returncode) == ("", 0), done.stdout
    one, other, *listed = done.stdout.splitlines()
    assert [path.rpartition("/")[0] for path in (one, other)] == [INSIDE, INSIDE]
    assert directories_of_triton("\n".join(listed)) == ([INSIDE] if kind == "none" else [])


def machine(root: Path, *, with_scripts: bool) -> None:
    """Add a driver of which only the loader's cache, or links and scripts, say where it is."""
    libraries, programs = root / INSIDE[1:], root / "usr/local/nvidia/bin"
    driver(libraries, "gcc")
    (libraries / "libcuda.so.1").symlink_to(f"libcuda.so.{VERSION}")
    for directory in (programs, root / "usr/bin", root / LIBRARIES, root / "etc", root / "dev"):
        directory.mkdir(parents=True)
    run("gcc", "-DPROGRAM", "-o", programs / "nvidia-smi", ROOT / "tests/gpu/stand_in.c")
    if with_scripts:
        for name in EVERY_NAME[1:]:
            (root / LIBRARIES / name).symlink_to(f"{INSIDE}/{name}")
        script = '#!/bin/sh\nexec /usr/local/nvidia/bin/nvidia-smi "$@"\n'
        (root / "usr/bin/nvidia-smi").write_text(script)
    else:
        (root / "etc/ld.so.conf").write_text(f"{INSIDE}\n")
        run("ldconfig", "-r", root)
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        run("mknod", "-m", "666", root / "dev" / name, "c", "1", "3")


def generated(engine: Engine, root: Path) -> dict[str, Any]:
    """Return what is generated for a machine below a directory, with the paths of its files."""
    made = run(engine.prefix / "bin/ce", "cdi", "generate", "nvidia", "--root", root)
    edits: dict[str, Any] = json.loads(made)["containerEdits"]
    tree = ImageTree(str(root))
    for entry in edits["mounts"]:
        entry["hostPath"] = f"{root}{tree.real(entry['hostPath'])}"
    edits["deviceNodes"].append({"path": "/dev/nvidia0"})
    for node in edits["deviceNodes"]:
        node["hostPath"] = f"{root}{node['path']}"
    return edits


@pytest.mark.parametrize("with_scripts", [False, True])
def test_a_driver_in_an_odd_place_works_in_a_container(
    engine: Engine, place: Place, with_scripts: bool
) -> None:
    root = place.node / f"machine-{with_scripts}"
    machine(root, with_scripts=with_scripts)
    there = gpus(place, engine, generated(engine, root))
    program = probe(place.dir)
    commands = f"nvidia-smi && {program} libcuda.so.1 && {program} libcuda.so && ldconfig -p"
    edf = there.edf(text(program), image(place, "none"))
    smi, one, other, *listed = there.output(edf, "sh", "-c", commands).splitlines()
    assert smi == "GPU 0: a stand-in, no GPU (UUID: GPU-0)"
    where = f"/{LIBRARIES}" if with_scripts else INSIDE
    assert [path.rpartition("/")[0] for path in (one, other)] == [where, where]
    assert directories_of_triton("\n".join(listed)) == [where]


def test_a_newer_driver_in_the_image_precedes_an_older_one_of_the_node(
    engine: Engine, place: Place
) -> None:
    there = gpus(place, engine, edits(driver(place.node / "old", "gcc"), "nvidia-ctk"))
    for version, wanted in (("590.1.1", "/usr/local/cuda/compat"), ("570.1.1", INSIDE)):
        tree = place.variant(f"compat-{version}")
        compat = tree / "usr/local/cuda-13/compat"
        build(compat / f"libcuda.so.{version}", "libcuda.so.1")
        (compat / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
        (tree / "usr/local/cuda").symlink_to("cuda-13")
        edf = there.edf('devices = ["nvidia.com/gpu=all"]', place.squash(tree))
        assert directories_of_triton(there.output(edf, "ldconfig", "-p")) == [wanted]


def test_a_program_of_the_driver_precedes_that_of_a_hook(engine: Engine, place: Place) -> None:
    wrapper, program = place.node / "wrapper", place.node / "program"
    for path in (wrapper, program):
        path.write_text(f"#!/bin/sh\necho {path.name}\n")
        path.chmod(0o755)
    own = {"hostPath": str(program), "containerPath": "/usr/bin/tool", "options": ["ro", "rbind"]}
    there = gpus(place, engine, {"mounts": [own]})
    place.hook(f'[edits.x]\nmounts = [{{ source = "{wrapper}", target = "/usr/bin/tool" }}]')
    edf = there.edf(f'devices = ["nvidia.com/gpu=all"]\n{edf_text("fabric")}')
    assert there.output(edf, "tool") == "program\n"
    shutil.rmtree(place.dir / "hooks.d/fabric")
