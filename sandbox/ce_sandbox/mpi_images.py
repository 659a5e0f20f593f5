"""Images with an MPI of the distribution and a program compiled against it."""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ce_sandbox import packages
from ce_sandbox.layout import Layout, SandboxError

PROBE = Path(__file__).resolve().parent.parent / "images" / "mpi.c"
# The nodes of a sandbox are one machine, which may have no network but lo; Open MPI leaves that out
# unless told otherwise. Its files of shared memory have no node in their names, so they must lie
# where the nodes do not meet: not in the machine's /dev/shm. Its ranks may be more than the CPUs.
_OPEN_MPI_SETTINGS = """\
pml = ob1
btl = self,vader,tcp
btl_tcp_if_include = lo
oob_tcp_if_include = lo
mpi_yield_when_idle = 1
btl_vader_backing_directory = /tmp
"""
_EVERYWHERE = ["bash", "coreutils", "dash", "hostname"]


@dataclass(frozen=True)
class Mpi:
    """Which packages have the MPI, which one its headers, where those and its library lie, the
    program that is its mpirun, and a file of settings (path and content) for the sandbox."""

    packages: tuple[str, ...]
    headers: str
    include: str
    library: str
    mpirun: str
    settings: tuple[str, str] | None = None


OPEN_MPI = Mpi(
    ("openmpi-bin",),
    "libopenmpi-dev",
    "usr/lib/{}/openmpi/include",
    "libmpi.so.40",
    "mpirun.openmpi",
    ("etc/openmpi/openmpi-mca-params.conf", _OPEN_MPI_SETTINGS),
)
MPICH = Mpi(
    ("mpich",),
    "libmpich-dev",
    "usr/include/{}/mpich",
    "libmpich.so.12",
    "mpirun.mpich",
)
BY_NAME = {"openmpi": OPEN_MPI, "mpich": MPICH}
SOURCES = (Path(__file__), PROBE)


def fill(mpi: Mpi, layout: Layout, root: Path) -> None:
    """The packages' files and /usr/bin/mpi-probe below `root`."""
    cache = layout.cache / "packages"
    packages.unpack([*_EVERYWHERE, *mpi.packages], cache, root)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    # no script of the packages has run, which would have made this link
    (root / "usr/bin/mpirun").symlink_to(mpi.mpirun)
    if mpi.settings is not None:
        (root / mpi.settings[0]).write_text(mpi.settings[1])
    with tempfile.TemporaryDirectory(dir=layout.cache) as headers:
        packages.unpack_alone(mpi.headers, cache, Path(headers))
        _compile(mpi, Path(headers), root)


def _compile(mpi: Mpi, headers: Path, root: Path) -> None:
    triplet = _checked(["gcc", "-print-multiarch"]).strip()
    library = root / "usr/lib" / triplet / mpi.library
    # what the library itself needs is in the image, not here
    link = [str(library), "-Wl,--allow-shlib-undefined", "-o", str(root / "usr/bin/mpi-probe")]
    include = f"-I{headers / mpi.include.format(triplet)}"
    _checked(["gcc", "-O2", include, str(PROBE), *link])


def _checked(argv: list[str]) -> str:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise SandboxError(f"{argv[0]}: {lines[0]}", f"by hand: {' '.join(argv)}")
    return done.stdout
