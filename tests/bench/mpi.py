"""Messages between ranks in containers, against the same MPI outside.

The run outside uses the very same files: the image unpacked, with its own loader and libraries.
Both run at once, with their ranks bound to the same CPUs, and take turns of some milliseconds
(mpi-probe bench). A ratio compares two successive turns; the sides alternate in going
first. A figure is the median over the turns of each start, and then over the starts. The addresses
of a start's memory change the time of a small message by a tenth or more, so a control with both
sides outside runs beside it.
"""

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ce_sandbox import images
from ce_sandbox.layout import Layout
from tests.bench.place import Place
from tests.bench.results import Row
from tests.bench.samples import Samples
from tests.bench.user import BenchError, User

_BUDGET = 1.03
_LIBRARIES = "usr/lib/{}-linux-gnu"


@dataclass(frozen=True)
class Way:
    """One MPI over one transport; `env` is the same inside and outside."""

    name: str
    image: str
    srun: tuple[str, ...]
    env: Mapping[str, str]


# The image has settings of its own for the sandbox; here both sides get the same ones.
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
_LABELS: dict[tuple[str, int], str] = {
    ("pingpong", 8): "latency, 8 B",
    ("pingpong", 1 << 20): "message of 1 MiB",
    ("allreduce", 8): "allreduce, 8 B",
    ("allreduce", 1 << 20): "allreduce, 1 MiB",
}
Kind = tuple[str, int]
# The figures of each kind of message, in the order of the turns.
Turns = dict[Kind, list[float]]
# If one side fails, the other is killed, as it would wait for it forever.
_BOTH = """
turns=$1
head -c 4096 /dev/zero >"$turns"
eval "$2" >"$turns.one" 2>&1 & one=$!
eval "$3" >"$turns.other" 2>&1 || { kill $one; cat "$turns.other"; exit 1; }
wait $one || { cat "$turns.one"; exit 1; }
cat "$turns.one"; echo; cat "$turns.other"
"""


def measure(user: User, here: Place, layout: Layout, rounds: int) -> list[Row]:
    for image in ("openmpi", "mpich"):
        _prepare(here, layout, image)
    return [row for way in _WAYS for row in _rows(user, here, way, rounds)]


def _rows(user: User, here: Place, way: Way, starts: int) -> list[Row]:
    outside, inside = _outside(here, way), _inside(here, way)
    taken, control = [], []
    for number in range(starts):
        taken.append(_both(user, here, way, inside, outside, side=number % 2))
        control.append(_both(user, here, way, outside, outside, side=number % 2))
    return [
        *(_row(f"{way.name}: {label}", kind, taken, _BUDGET) for kind, label in _LABELS.items()),
        *(
            _row(f"{way.name}: {label}, both outside", kind, control, None)
            for kind, label in _LABELS.items()
        ),
    ]


def _row(metric: str, kind: Kind, taken: list[tuple[Turns, Turns]], budget: float | None) -> Row:
    mine = Samples(tuple(median(one[kind]) for one, _other in taken))
    ratios = [
        median(a / b for a, b in zip(one[kind], other[kind], strict=True)) for one, other in taken
    ]
    return Row(
        metric,
        round(mine.median, 3),
        "µs",
        "outside",
        round(median(ratios), 3),
        budget,
        min(mine.values),
        max(mine.values),
        len(mine.values),
    )


def _inside(here: Place, way: Way) -> list[str]:
    edf = here.dir / f"{way.image}.toml"
    return ["srun", *way.srun, "--cpu-bind=none", f"--environment={edf}", "mpi-probe"]


def _outside(here: Place, way: Way) -> list[str]:
    tree = here.dir / way.image
    libraries = tree / _LIBRARIES.format(os.uname().machine)
    loader = next(tree.glob("lib64/ld-linux-*.so.*"), None) or next(libraries.glob("ld-linux-*"))
    moved = [f"{name}={value}" for name, value in _moved(libraries).items()]
    probe = [str(loader), "--library-path", str(libraries), str(tree / "usr/bin/mpi-probe")]
    return ["env", *moved, "srun", *way.srun, "--cpu-bind=none", *probe]


def _both(
    user: User, here: Place, way: Way, one: list[str], other: list[str], side: int
) -> tuple[Turns, Turns]:
    """Start both once and return the figures of their turns.

    `side` is that of `one`.
    """
    turns = str(here.dir / "turns")
    first = shlex.join([*one, "bench", turns, str(side)])
    second = shlex.join([*other, "bench", turns, str(1 - side)])
    output = user.output(["sh", "-c", _BOTH, "sh", turns, first, second], way.env)
    found, _blank, others = output.partition("\n\n")
    return _figures(found), _figures(others)


def _prepare(here: Place, layout: Layout, image: str) -> None:
    """Write the image's EDF, and unpack its files for the runs outside."""
    file = images.provide(layout, image)
    text = f'image = "{file}"\nmounts = ["{here.dir}"]\n'
    (here.dir / f"{image}.toml").write_text(text)
    tree = here.dir / image
    unpack = ["unsquashfs", "-q", "-n", "-d", str(tree), str(file)]
    done = subprocess.run(unpack, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{' '.join(unpack)}: {done.stderr.strip()}")


def _moved(libraries: Path) -> dict[str, str]:
    """Return variables by which MPI and PMIx find their plugins in the unpacked image."""
    return {
        "OMPI_MCA_mca_base_component_path": str(libraries / "openmpi/lib/openmpi3"),
        "PMIX_MCA_mca_base_component_path": str(libraries / "pmix2/lib/pmix"),
    }


def _figures(output: str) -> Turns:
    rows = [line.split() for line in output.splitlines() if line and not line.startswith("srun:")]
    found: Turns = {}
    for name, size, microseconds in rows:
        found.setdefault((name, int(size)), []).append(float(microseconds))
    if set(found) != set(_LABELS):
        raise BenchError(f"mpi-probe bench: {output.strip() or 'printed nothing'}")
    return found
