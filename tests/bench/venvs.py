"""`python -m tests.bench.venvs DIRECTORY MODULE`: import from a file server that is far away.

DIRECTORY is a virtual environment of /usr/bin/python3. Two clients of `file_server.c` stand for two
nodes; on each, eight interpreters at once import the module. Requests and bytes of the file server
are counted; the seconds mean something only on an idle machine. Needs root, libfuse 3 and
squashfuse_ll.
"""

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ce_sandbox.layout import from_environment
from container_engine.build.pack_venv import Archive
from container_engine.images.pack.pack import Packer

_SOURCE = Path(__file__).with_name("file_server.c")
_NODES, _RANKS = 2, 8
_COUNTERS = struct.Struct("4Q")
_TIMEOUT_S = 900


class Place(NamedTuple):
    """Where things are: `mount` of a client and `memory` of its node."""

    mount: Path
    memory: Path
    server: Path


def build(where: Path) -> Path:
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True
    ).stdout.split()
    program = where / "file_server"
    subprocess.run(["gcc", "-O2", "-o", program, _SOURCE, *flags], check=True)
    return program


@contextlib.contextmanager
def mounted(argv: Sequence[str | Path], place: Path) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while not place.is_mount():
            assert time.monotonic() < deadline, argv
            time.sleep(0.01)
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)
        process.wait()


def directory(place: Place, _stack: contextlib.ExitStack) -> Path:
    return place.mount / "venv"


def uncompiled(place: Place, _stack: contextlib.ExitStack) -> Path:
    return place.mount / "plain"


def packed(place: Place, stack: contextlib.ExitStack) -> Path:
    file, at = place.mount / "venv.sqsh", place.memory / "at"
    stack.enter_context(mounted([place.server, file, at], at))
    return at


def by_squashfuse(place: Place, stack: contextlib.ExitStack) -> Path:
    file, at = place.mount / "venv.sqsh", place.memory / "at"
    stack.enter_context(mounted(["squashfuse_ll", "-f", file, at], at))
    return at


def copied(place: Place, stack: contextlib.ExitStack) -> Path:
    """Copy the file into the node's memory first, as sbcast does."""
    file, at = place.memory / "venv.sqsh", place.memory / "at"
    shutil.copy(place.mount / "venv.sqsh", file)
    stack.enter_context(mounted([place.server, file, at], at))
    return at


def unpacked(place: Place, _stack: contextlib.ExitStack) -> Path:
    """Unpack an archive into the node's memory first."""
    (at := place.memory / "at").mkdir()
    subprocess.run(["tar", "-xf", place.mount / "venv.tar.gz", "-C", at], check=True)
    return at


WAYS: dict[str, Callable[[Place, contextlib.ExitStack], Path]] = {
    "directory": directory,
    "directory without bytecode": uncompiled,
    "packed, ce-image": packed,
    "packed, squashfuse_ll": by_squashfuse,
    "packed, copied to each node": copied,
    "tar.gz, unpacked on each node": unpacked,
}


def measured(way: str, where: Path, module: str, program: Path) -> tuple[float, tuple[int, ...]]:
    """Return the seconds until the last rank is done, and the counts of the file server."""
    server = from_environment(os.environ).prefix / "libexec/container-engine/ce-image"
    (state := where / "state").unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        places = []
        for node in range(_NODES):
            memory = Path(tempfile.mkdtemp(prefix="ce-bench-", dir="/dev/shm"))
            stack.callback(shutil.rmtree, memory)
            mount = where / f"node{node}"
            argv = [program, state, where / "served", mount]
            stack.enter_context(mounted(argv, mount))
            places.append(Place(mount, memory, server))
        started = time.monotonic()
        roots = [WAYS[way](place, stack) for place in places]
        ranks = [
            subprocess.Popen([root / "bin/python3", "-B", "-c", f"import {module}"])
            for root in roots
            for _ in range(_RANKS)
        ]
        assert [rank.wait(_TIMEOUT_S) for rank in ranks] == [0] * len(ranks)
        took = time.monotonic() - started
        names, opens, reads, size = _COUNTERS.unpack_from(state.read_bytes())
    return took, (names, opens, reads, size)


def serve(venv: Path, where: Path) -> None:
    """Put all that is measured where the file server has it."""
    served = where / "served"
    served.mkdir()
    shutil.copytree(venv, served / "venv", symlinks=True)
    modules = served / "venv/lib"
    compile_all = [str(served / "venv/bin/python3"), "-m", "compileall", "-q", str(modules)]
    subprocess.run(compile_all, stdout=subprocess.DEVNULL)  # not all files are modules
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(served / "venv", served / "plain", symlinks=True, ignore=ignored)
    archive = Archive(str(served / "venv"), str(venv), [str(venv)], str(where / "none"))
    Packer(dict(os.environ), _TIMEOUT_S).pack_archive(
        str(served / "venv.sqsh"), lambda out: archive.write(out, lambda _done: None)
    )
    argv = ["tar", "-czf", str(served / "venv.tar.gz"), "-C", str(served / "venv"), "."]
    subprocess.run(argv, check=True)


def main(venv: Path, module: str) -> None:
    with tempfile.TemporaryDirectory(prefix="ce-bench-", dir=venv.parent) as name:
        where = Path(name)
        program = build(where)
        serve(venv, where)
        print(f"| import {module} | names | opens | reads | MB | s |\n|---|---|---|---|---|---|")
        for way in WAYS:
            took, (names, opens, reads, size) = measured(way, where, module, program)
            print(f"| {way} | {names} | {opens} | {reads} | {size / 1e6:.0f} | {took:.0f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
