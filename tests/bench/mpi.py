"""Messages between ranks in containers, against the same MPI outside.

Outside runs the very same files: the image unpacked, with its own loader and libraries. All ways
are run in turn, each as a step of its own; every figure is a median in a run, and of the runs.
"""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ce_sandbox import images
from ce_sandbox.layout import Layout

from tests.bench.place import Place
from tests.bench.results import Row
from tests.bench.samples import Samples
from tests.bench.user import BenchError, User

_BUDGET = 1.03
# A run has hundreds of samples already, and takes half a second.
_MOST_ROUNDS = 15
_LIBRARIES = "usr/lib/{}-linux-gnu"


@dataclass(frozen=True)
class Way:
    """One MPI over one transport; `env` is the same inside and outside."""

    name: str
    image: str
    srun: tuple[str, ...]
    env: Mapping[str, str]


# The image has settings of its own for the sandbox; here inside and outside have the same.
_OPEN_MPI = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl_vader_backing_directory": "/dev/shm",
    "OMPI_MCA_mpi_yield_when_idle": "0",
}
_WAYS = (
    Way(
        "Open MPI, shared memory",
        "openmpi",
        ("--mpi=pmix", "-N1", "-n2"),
        {**_OPEN_MPI, "OMPI_MCA_btl": "self,vader"},
    ),
    Way(
        "Open MPI, TCP, two nodes",
        "openmpi",
        ("--mpi=pmix", "-N2", "-n2"),
        {**_OPEN_MPI, "OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"},
    ),
    Way(
        "MPICH, shared memory",
        "mpich",
        ("--mpi=pmi2", "-N1", "-n2"),
        {"UCX_TLS": "posix,cma,self"},
    ),
)
_LABELS = {
    ("pingpong", 8): "latency, 8 B",
    ("pingpong", 1 << 20): "message of 1 MiB",
    ("allreduce", 8): "allreduce, 8 B",
    ("allreduce", 1 << 20): "allreduce, 1 MiB",
}
Figures = dict[tuple[str, int], float]


def measure(user: User, here: Place, layout: Layout, rounds: int) -> list[Row]:
    for image in ("openmpi", "mpich"):
        _prepare(here, layout, image)
    commands = {
        (way.name, inside): _command(here, way, inside=inside)
        for way in _WAYS
        for inside in (False, True)
    }
    taken: dict[tuple[str, bool], list[Figures]] = {run: [] for run in commands}
    for number in range(min(rounds, _MOST_ROUNDS)):
        # now the one, now the other first: what disturbs a round shall not always hit the same
        order = list(commands) if number % 2 else list(commands)[::-1]
        for run in order:
            taken[run].append(_figures(user.output(*commands[run])))
    return [
        _row(way.name, what, taken[way.name, True], taken[way.name, False])
        for way in _WAYS
        for what in _LABELS
    ]


def _row(name: str, what: tuple[str, int], inside: list[Figures], outside: list[Figures]) -> Row:
    mine = Samples(tuple(figures[what] for figures in inside))
    # each round's own ratio: the machine differs from round to round more than the two do
    ratios = (a[what] / b[what] for a, b in zip(inside, outside, strict=True))
    return Row(
        f"{name}: {_LABELS[what]}",
        mine.median,
        "µs",
        "outside",
        round(Samples(tuple(ratios)).median, 3),
        _BUDGET,
        min(mine.values),
        max(mine.values),
        len(mine.values),
    )


def _prepare(here: Place, layout: Layout, image: str) -> None:
    """The image's EDF, and its files for the runs outside."""
    file = images.provide(layout, image)
    (here.dir / f"{image}.toml").write_text(f'image = "{file}"\n')
    tree = here.dir / image
    unpack = ["unsquashfs", "-q", "-n", "-d", str(tree), str(file)]
    done = subprocess.run(unpack, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{' '.join(unpack)}: {done.stderr.strip()}")


def _command(here: Place, way: Way, *, inside: bool) -> tuple[list[str], dict[str, str]]:
    srun = ["srun", *way.srun, "--cpu-bind=none"]
    if inside:
        edf = here.dir / f"{way.image}.toml"
        return [*srun, f"--environment={edf}", "mpi-probe", "bench"], dict(way.env)
    tree = here.dir / way.image
    libraries = tree / _LIBRARIES.format(os.uname().machine)
    loader = next(tree.glob("lib64/ld-linux-*.so.*"), None) or next(libraries.glob("ld-linux-*"))
    probe = [str(loader), "--library-path", str(libraries), str(tree / "usr/bin/mpi-probe")]
    return [*srun, *probe, "bench"], {**way.env, **_moved(libraries)}


def _moved(libraries: Path) -> dict[str, str]:
    """How MPI and PMIx find their plugins where they were not installed."""
    return {
        "OMPI_MCA_mca_base_component_path": str(libraries / "openmpi/lib/openmpi3"),
        "PMIX_MCA_mca_base_component_path": str(libraries / "pmix2/lib/pmix"),
    }


def _figures(output: str) -> Figures:
    rows = (line.split() for line in output.splitlines())
    found = {(row[0], int(row[1])): float(row[2]) for row in rows if row and row[0] != "srun:"}
    if set(found) != set(_LABELS):
        raise BenchError(f"mpi-probe bench: {output.strip() or 'printed nothing'}")
    return found
