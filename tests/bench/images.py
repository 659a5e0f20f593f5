"""`make bench-images`: time an import against other ways and the compressor alone.

The image is that of `tests.bench.tree`, in two layers; RUNS (default 3) is the number of rounds.
Needs root, for Podman's mounts. The processor time of all programs is measured too: it shows what
to expect where the processors have other work.
"""

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from container_engine.images.pack.pack import OF_ARCHIVE, OF_TREE
from tests.bench import tree as bench_tree
from tests.bench.results import Row, duration, table, write
from tests.bench.samples import Samples, interleave
from tests.integration.registry import serving

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "build" / "bench-images.json"
_BUDGET, _MEMORY_MIB = 1.2, 300
_NAME, _SECOND = "bench/debian:1", "bench/debian:2"
_CE = [sys.executable, "-m", "container_engine"]
_UPPER = "./usr/lib/python3"  # the content of the upper layer


class Way(NamedTuple):
    """Work to measure, and what must be done before and after it."""

    work: Callable[[], object]
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None


class Clock:
    """A clock that measures ways in turn, and the processor time of the programs they run."""

    def __init__(self) -> None:
        self._processor: dict[str, list[float]] = {}

    def rounds(self, ways: Mapping[str, Way], rounds: int) -> dict[str, Samples]:
        return interleave({name: self._timed(name, way) for name, way in ways.items()}, rounds)

    def processor(self, name: str) -> Samples:
        _warming, *values = self._processor[name]
        return Samples(tuple(values))

    def _timed(self, name: str, way: Way) -> Callable[[], float]:
        def measure() -> float:
            way.before()
            used, begin = _processor_time(), time.monotonic()
            way.work()
            took = time.monotonic() - begin
            self._processor.setdefault(name, []).append(_processor_time() - used)
            way.after()
            return took

        return measure


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Bench:
    """The ways to import an image and their state on disk.

    `tree` is the finished tree, `address` that of a registry that has it as an image.
    """

    def __init__(self, where: Path, tree: Path, address: str, env: Mapping[str, str]) -> None:
        self.where, self.tree, self.name = where, tree, f"{address}/{_NAME}"
        self.second = f"{address}/{_SECOND}"
        self.store = where / "store"
        self.env = {**env, "EDF_IMAGESTORE": str(self.store), "PYTHONPATH": str(ROOT)}
        place = ["--root", f"{where}/p", "--runroot", f"{where}/n", "--storage-driver", "overlay"]
        self.podman = ["podman", *place]
        conf = f'[storage]\ndriver="overlay"\ngraphroot="{where}/p"\nrunroot="{where}/n"\n'
        (where / "storage.conf").write_text(conf)
        self.env["CONTAINERS_STORAGE_CONF"] = str(where / "storage.conf")

    def ways(self) -> dict[str, Way]:
        return {
            "cold": Way(self.pull, self.empty),
            "mksquashfs": Way(lambda: self.compress(str(self.tree))),
            "tar2sqfs": Way(self.compress_archive),
            "layers there": Way(self.pull, self.forget_images),
            "warm": Way(self.pull),
            "second": Way(self.pull_second, self.forget_second),
            "podman": Way(self.with_podman, after=self.forget_podman),
            "umoci": Way(self.with_umoci, after=self.forget_umoci),
        }

    def run(self, *argv: str) -> str:
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"bench: {' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def pull(self) -> None:
        self.run(*_CE, "pull", "--quiet", self.name)

    def pull_second(self) -> None:
        self.run(*_CE, "pull", "--quiet", self.second)

    def empty(self) -> None:
        shutil.rmtree(self.store, ignore_errors=True)

    def forget_images(self) -> None:
        for kind in ("images", "refs"):
            shutil.rmtree(self.store / kind)

    def forget_second(self) -> None:
        """Reset the store to the first image and its layers; the second shares one of them."""
        self.empty()
        self.pull()

    def with_podman(self) -> None:
        self.run(*self.podman, "pull", "--quiet", "--tls-verify=false", self.name)
        self.compress(self.run(*self.podman, "image", "mount", self.name))

    def forget_podman(self) -> None:
        self.run(*self.podman, "image", "umount", self.name)
        self.run(*self.podman, "image", "rm", self.name)

    def with_umoci(self) -> None:
        self.run("skopeo", "copy", "-q", f"docker://{self.name}", f"oci:{self.where}/u:x")
        self.run("umoci", "unpack", "--image", f"{self.where}/u:x", f"{self.where}/bundle")
        self.compress(f"{self.where}/bundle/rootfs")

    def forget_umoci(self) -> None:
        for name in ("u", "bundle"):
            shutil.rmtree(self.where / name)

    def compress(self, tree: str) -> None:
        self.run("mksquashfs", tree, f"{self.where}/made.sqsh", *OF_TREE)

    def compress_archive(self) -> None:
        with (self.where / "tree.tar").open("rb") as archive:
            argv = [*OF_ARCHIVE, "--force", f"{self.where}/made.sqsh"]
            subprocess.run(argv, env=self.env, stdin=archive, check=True)


class Peaks:
    """Peak memory of all processes below this one, and peak disk usage below a directory."""

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


def _layer(tree: Path, path: Path, *what: str) -> str:
    """Write a gzip layer; return the SHA-256 of its uncompressed content."""
    command = 'tar -C "$0" --sort=name -c "${@:2}" | tee >(sha256sum >"$1.sum") | gzip -6 >"$1"'
    subprocess.run(["bash", "-c", command, str(tree), str(path), *what], check=True)
    return Path(f"{path}.sum").read_text().split()[0]


def _push(
    target: str, where: Path, layers: Sequence[tuple[Path, str]], env: Mapping[str, str]
) -> int:
    """Push an image of these layers, each with the digest of its content; return their size."""
    blobs = where / "oci" / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    media = "application/vnd.oci.image"
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain}" for _path, plain in layers]},
    }

    def blob(data: bytes, kind: str) -> dict[str, object]:
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return {"mediaType": f"{media}.{kind}", "digest": f"sha256:{name}", "size": len(data)}

    manifest = {
        "schemaVersion": 2,
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(path.read_bytes(), "layer.v1.tar+gzip") for path, _plain in layers],
    }
    listed = [blob(json.dumps(manifest).encode(), "manifest.v1+json")]
    (where / "oci/index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": listed}))
    (where / "oci/oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    copy = ["skopeo", "copy", "--quiet", f"oci:{where}/oci", target]
    subprocess.run(copy, env=dict(env), check=True)
    shutil.rmtree(where / "oci")
    return sum(path.stat().st_size for path, _plain in layers)


def _push_all(tree: Path, where: Path, address: str, env: Mapping[str, str]) -> int:
    """Push the tree as an image, and another that shares its lower layer.

    Return the size of the first image's layers.
    """
    lower, upper, other = (where / name for name in ("lower", "upper", "other"))
    base = (lower, _layer(tree, lower, f"--exclude={_UPPER}", "."))
    first = [base, (upper, _layer(tree, upper, _UPPER))]
    second = [base, (other, _layer(tree, other, f"{_UPPER}/dist-packages/numpy"))]
    _push(f"docker://{address}/{_SECOND}", where, second, env)
    size = _push(f"docker://{address}/{_NAME}", where, first, env)
    for path in (lower, upper, other):
        path.unlink()
    subprocess.run(["tar", "-C", str(tree), "-cf", str(where / "tree.tar"), "."], check=True)
    return size


def _rows(bench: Bench, layers: int, rounds: int) -> list[Row]:
    clock = Clock()
    measured = clock.rounds(bench.ways(), rounds)
    alone = ("mksquashfs alone", measured["mksquashfs"])
    product = ("tar2sqfs alone", measured["tar2sqfs"])
    cold = measured["cold"]
    return [
        duration("import, cold", cold, against=alone, budget=_BUDGET),
        duration("import, cold, beside its own compressor", cold, against=product),
        duration(
            "import, cold, beside Podman's way",
            cold,
            against=("podman pull + mksquashfs", measured["podman"]),
            budget=1,
        ),
        duration("import, layers there", measured["layers there"], against=alone),
        duration("import, the larger layer there", measured["second"], against=alone),
        duration("image there, tag looked up", measured["warm"]),
        duration("podman pull + image mount + mksquashfs", measured["podman"], against=alone),
        duration("skopeo copy + umoci + mksquashfs", measured["umoci"], against=alone),
        *_processor_rows(clock),
        *_peaks(bench, layers),
    ]


def _processor_rows(clock: Clock) -> list[Row]:
    """Return rows of processor time; the registry is nobody's child and is not counted."""
    alone = ("mksquashfs alone", clock.processor("mksquashfs"))
    return [
        duration(f"processor time: {what}", clock.processor(name), against=alone)
        for what, name in (
            ("import, cold", "cold"),
            ("import, layers there", "layers there"),
            ("tar2sqfs alone", "tar2sqfs"),
            ("podman pull + image mount + mksquashfs", "podman"),
            ("skopeo copy + umoci + mksquashfs", "umoci"),
        )
    ]


def _peaks(bench: Bench, layers: int) -> list[Row]:
    bench.empty()
    with Peaks(bench.store) as peaks:
        bench.pull()
    made = sum(path.stat().st_size for path in bench.store.glob("images/*.sqsh"))
    beside = peaks.disk - made
    compressed = round(beside / layers, 3)
    return [
        Row("memory of an import", peaks.memory_kib // 1024, "MiB", budget=_MEMORY_MIB),
        Row("disk beside the image", beside >> 20, "MiB", "compressed layers", compressed, 1.01),
    ]


def main() -> int:
    rounds = int(os.environ.get("RUNS") or 3)
    tree = bench_tree.made()
    with tempfile.TemporaryDirectory(prefix="ce-bench-", dir="/var/tmp") as place:
        where = Path(place)
        (where / "home").mkdir()
        with serving(where / "home") as registry:
            layers = _push_all(tree, where, registry.address, registry.env)
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
