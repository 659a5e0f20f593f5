"""`make bench-images`: how long an import takes, against other ways and the compressor alone.

The image is a Debian system with compilers, Python and an MPI, made once by debootstrap below the
sandbox's cache; BENCH_TREE=DIR takes another tree. RUNS (default 3) is the number of rounds. Needs
root, for Podman's mounts.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from container_engine.images.packing import OF_TREE
from tests.bench.results import Row, duration, table, write
from tests.bench.samples import interleave
from tests.integration.registry import serving

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "build" / "bench-images.json"
_PACKAGES = "gcc,g++,gfortran,python3,python3-numpy,python3-scipy,openmpi-bin,libopenmpi-dev,git"
_BUDGET, _MEMORY_MIB = 1.2, 300
_NAME = "bench/debian:1"
_CE = [sys.executable, "-m", "container_engine"]


class Bench:
    """`tree` is the finished tree, `address` that of a registry that has it as an image."""

    def __init__(self, where: Path, tree: Path, address: str, env: Mapping[str, str]) -> None:
        self.where, self.tree, self.name = where, tree, f"{address}/{_NAME}"
        self.store = where / "store"
        self.env = {**env, "EDF_IMAGESTORE": str(self.store), "PYTHONPATH": str(ROOT)}
        place = ["--root", f"{where}/p", "--runroot", f"{where}/n", "--storage-driver", "overlay"]
        self.podman = ["podman", *place]
        conf = f'[storage]\ndriver="overlay"\ngraphroot="{where}/p"\nrunroot="{where}/n"\n'
        (where / "storage.conf").write_text(conf)
        self.env["CONTAINERS_STORAGE_CONF"] = str(where / "storage.conf")

    def run(self, *argv: str) -> str:
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"bench: {' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def pull(self) -> float:
        return _timed(lambda: self.run(*_CE, "pull", "--quiet", self.name))

    def cold(self) -> float:
        shutil.rmtree(self.store, ignore_errors=True)
        return self.pull()

    def layers_there(self) -> float:
        for kind in ("images", "refs"):
            shutil.rmtree(self.store / kind)
        return self.pull()

    def with_podman(self) -> float:
        def work() -> None:
            self.run(*self.podman, "pull", "--quiet", "--tls-verify=false", self.name)
            self.compress(self.run(*self.podman, "image", "mount", self.name))

        took = _timed(work)
        self.run(*self.podman, "image", "umount", self.name)
        self.run(*self.podman, "image", "rm", self.name)
        return took

    def with_umoci(self) -> float:
        def work() -> None:
            self.run("skopeo", "copy", "-q", f"docker://{self.name}", f"oci:{self.where}/u:x")
            self.run("umoci", "unpack", "--image", f"{self.where}/u:x", f"{self.where}/bundle")
            self.compress(f"{self.where}/bundle/rootfs")

        took = _timed(work)
        for name in ("u", "bundle"):
            shutil.rmtree(self.where / name)
        return took

    def compress(self, tree: str) -> None:
        self.run("mksquashfs", tree, f"{self.where}/made.sqsh", *OF_TREE)

    def compressor(self) -> float:
        return _timed(lambda: self.compress(str(self.tree)))


def _timed(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


class Peaks:
    """The most memory of all processes below this one, and disk below a directory, meanwhile."""

    def __init__(self, store: Path) -> None:
        self.memory_kib, self.disk = 0, 0
        self._store, self._over = store, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            self.memory_kib = max(self.memory_kib, sum(map(_pss, _below(os.getpid()))))
            self.disk = max(self.disk, sum(map(_size, self._store.rglob("*"))))


def _below(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            continue
        found += [process for child in children for process in (child, *_below(child))]
    return [child for child in found if "docker-registry" not in _command(child)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _size(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except OSError:
        return 0


def _tree() -> Path:
    named = os.environ.get("BENCH_TREE")
    if named:
        return Path(named)
    cache = Path(os.environ.get("CE_SANDBOX_DIR", "/var/lib/ce-sandbox")) / "cache"
    tree = cache / "bench-debian"
    if not tree.exists():
        draft = cache / "bench-debian.new"
        shutil.rmtree(draft, ignore_errors=True)
        argv = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm"]
        subprocess.run([*argv, str(draft)], check=True, stdout=subprocess.DEVNULL)
        draft.rename(tree)
    return tree


def _push(tree: Path, where: Path, address: str, env: Mapping[str, str]) -> int:
    """The tree as an image of one gzip layer, in the registry; returns the layer's size."""
    blobs = where / "oci" / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    command = 'tar -C "$0" --sort=name -c . | tee >(sha256sum >"$1.sum") | gzip -6 >"$1"'
    layer = where / "layer"
    subprocess.run(["bash", "-c", command, str(tree), str(layer)], check=True)
    plain = Path(f"{layer}.sum").read_text().split()[0]
    media = "application/vnd.oci.image"
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    config = {
        "architecture": arch,
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain}"]},
    }

    def blob(data: bytes, kind: str) -> dict[str, object]:
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return {"mediaType": f"{media}.{kind}", "digest": f"sha256:{name}", "size": len(data)}

    manifest = {
        "schemaVersion": 2,
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(layer.read_bytes(), "layer.v1.tar+gzip")],
    }
    index = {
        "schemaVersion": 2,
        "manifests": [blob(json.dumps(manifest).encode(), "manifest.v1+json")],
    }
    (where / "oci/index.json").write_text(json.dumps(index))
    (where / "oci/oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    target = f"docker://{address}/{_NAME}"
    copy = ["skopeo", "copy", "--quiet", f"oci:{where}/oci", target]
    subprocess.run(copy, env=dict(env), check=True)
    size = layer.stat().st_size
    shutil.rmtree(where / "oci")
    layer.unlink()
    return size


def _rows(bench: Bench, layers: int, rounds: int) -> list[Row]:
    ways = {
        "cold": bench.cold,
        "compressor": bench.compressor,
        "layers there": bench.layers_there,
        "warm": bench.pull,
        "podman": bench.with_podman,
    }
    if shutil.which("umoci"):
        ways["umoci"] = bench.with_umoci
    measured = interleave(ways, rounds)
    alone = ("mksquashfs alone", measured["compressor"])
    podman = ("podman pull + mksquashfs", measured["podman"])
    rows = [
        duration("import, cold", measured["cold"], against=alone, budget=_BUDGET),
        duration("import, cold, beside Podman's way", measured["cold"], against=podman, budget=1),
        duration("import, layers there", measured["layers there"], against=alone),
        duration("image there, tag looked up", measured["warm"]),
        duration("podman pull + image mount + mksquashfs", measured["podman"], against=alone),
    ]
    if "umoci" in measured:
        rows.append(duration("skopeo copy + umoci + mksquashfs", measured["umoci"], against=alone))
    shutil.rmtree(bench.store)
    with Peaks(bench.store) as peaks:
        bench.pull()
    made = sum(path.stat().st_size for path in bench.store.glob("images/*.sqsh"))
    beside = peaks.disk - made
    return [
        *rows,
        Row("memory of an import", peaks.memory_kib // 1024, "MiB", budget=_MEMORY_MIB),
        Row(
            "disk beside the image",
            beside >> 20,
            "MiB",
            "compressed layers",
            round(beside / layers, 3),
            1.01,
        ),
    ]


def main() -> int:
    rounds = int(os.environ.get("RUNS") or 3)
    tree = _tree()
    with tempfile.TemporaryDirectory(prefix="ce-bench-", dir="/var/tmp") as place:
        where = Path(place)
        (where / "home").mkdir()
        with serving(where / "home") as registry:
            layers = _push(tree, where, registry.address, registry.env)
            rows = _rows(Bench(where, tree, registry.address, registry.env), layers, rounds)
    write(rows, RESULT)
    print(table(rows))
    print(
        f"\n{layers >> 20} MiB of layers, {rounds} rounds in turn, {os.cpu_count()} CPUs, ", end=""
    )
    print(f"load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
