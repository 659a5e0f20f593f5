"""`make bench-reading`: time programs that read from an image, beside a directory.

The image is that of `tests.bench.tree`, packed as an import packs it. As in a container, an overlay
is above the mount, which is ce-image's, as in a step, squashfuse_ll's or the kernel's. Cold means a
new mount; the image's file is in the page cache, since the disk would be the same for all. Needs
root, for mounts and chroot. RUNS (default 5) is the number of rounds.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from ce_sandbox.layout import from_environment
from container_engine.images.pack.pack import OF_TREE
from tests.bench import tree as bench_tree
from tests.bench.results import Row, duration, table, write
from tests.bench.samples import Samples, interleave

RESULT = Path(__file__).parents[2] / "build" / "bench-reading.json"
# Name -> command that runs with the tree as its root.
_WORK = {
    "import numpy, scipy.stats": "python3 -B -c 'import numpy, scipy.stats'",
    "find with a look at each file": "find /usr -xdev -size +1000000",
    "tar of 136 MB": "tar -C /usr/lib -cf - python3 | cat",
    "16 ranks read Python's modules at once": (
        "for rank in $(seq 16); do find /usr/lib/python3 -name '*.py' -exec cat {} + & done; wait"
    ),
}
_WARM, _COLD = 1.2, 1.1
_OTHERS = ("squashfuse_ll", "kernel")


class Mounts:
    """Mounts that have the tree; `fresh` replaces them by new ones."""

    def __init__(self, where: Path, tree: Path, image: Path, server: Path) -> None:
        self.tree = tree
        self._where, self._image, self._server = where, image, server
        self._open = contextlib.ExitStack()

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def root(self, kind: str) -> Path:
        return self.tree if kind == "directory" else self._where / kind / "root"

    def fresh(self) -> None:
        self._open.close()
        for kind, mount in (
            ("ce-image", [str(self._server)]),
            ("squashfuse_ll", ["squashfuse_ll", "-o", "allow_other"]),
            ("kernel", ["mount", "-t", "squashfs", "-o", "loop,ro"]),
        ):
            self._open.enter_context(self._mounted(kind, mount))

    @contextlib.contextmanager
    def _mounted(self, kind: str, mount: list[str]) -> Iterator[None]:
        place = self._where / kind
        image, upper, work, root = (place / name for name in ("image", "upper", "work", "root"))
        for directory in (image, upper, work, root):
            directory.mkdir(parents=True, exist_ok=True)
        layers = f"lowerdir={image},upperdir={upper},workdir={work},userxattr"
        with contextlib.ExitStack() as stack:
            _run(*mount, str(self._image), str(image))
            stack.callback(_run, "umount", str(image))
            _run("mount", "-t", "overlay", "overlay", "-o", layers, str(root))
            stack.callback(_run, "umount", str(root))
            yield


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def _timed(root: Path, command: str) -> float:
    argv = ["chroot", str(root), "/bin/sh", "-c", command]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    begin = time.monotonic()
    subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def warm(run: Callable[[], float]) -> Callable[[], float]:
    """Return the better of two runs after one that is not counted.

    Measuring cold mounts makes all of them new, so the first run after it is a cold one.
    """

    def measure() -> float:
        run()
        return min(run(), run())

    return measure


def _measure(mounts: Mounts, rounds: int) -> dict[str, Samples]:
    def cold(root: Path, command: str) -> Callable[[], float]:
        def measure() -> float:
            mounts.fresh()
            return _timed(root, command)

        return measure

    ways: dict[str, Callable[[], float]] = {}
    for name, command in _WORK.items():
        for kind in ("ce-image", "squashfuse_ll", "kernel"):
            ways[f"{name}, {kind}, cold"] = cold(mounts.root(kind), command)
        for kind in ("directory", "ce-image", "squashfuse_ll", "kernel"):
            ways[f"{name}, {kind}, warm"] = warm(partial(_timed, mounts.root(kind), command))
    return interleave(ways, rounds)


def _rows(measured: dict[str, Samples]) -> list[Row]:
    rows = []
    for name in _WORK:
        plain = ("a directory", measured[f"{name}, directory, warm"])
        kernel = ("the kernel's mount, cold", measured[f"{name}, kernel, cold"])
        warm, cold = f"{name}, ce-image, warm", f"{name}, ce-image, cold"
        rows += [
            duration(f"{name}, directory, warm", plain[1]),
            duration(warm, measured[warm], against=plain, budget=_WARM),
            *(duration(way, measured[way], against=plain) for way in _others(name, "warm")),
            duration(cold, measured[cold], against=kernel, budget=_COLD),
            *(duration(way, measured[way], against=kernel) for way in _others(name, "cold")),
        ]
    return rows


def _others(name: str, when: str) -> list[str]:
    return [f"{name}, {kind}, {when}" for kind in _OTHERS]


def packed(tree: Path, image: Path) -> None:
    """Pack the tree as an import packs it."""
    _run("mksquashfs", str(tree), str(image), *OF_TREE)


def report(rows: Sequence[Row], rounds: int, result: Path) -> None:
    """Print the rows, and write them to the file `result`."""
    write(rows, result)
    print(table(rows))
    print(f"\n{rounds} rounds in turn, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")


def main() -> int:
    rounds = int(os.environ.get("RUNS") or 5)
    tree = bench_tree.made()
    server = from_environment(os.environ).prefix / "libexec/container-engine/ce-image"
    with tempfile.TemporaryDirectory(prefix="ce-bench-", dir="/var/tmp") as place:
        image = Path(place) / "image.sqsh"
        packed(tree, image)
        with Mounts(Path(place), tree, image, server) as mounts:
            rows = _rows(_measure(mounts, rounds))
    report(rows, rounds, RESULT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
