"""Images with an MPI of the distribution and a program compiled against it."""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ce_sandbox import packages
from ce_sandbox.layout import Layout, SandboxError

PROBE = Path(__file__).resolve().parent.parent / "images" / "mpi.c"
# The nodes of a sandbox are one machine, which may have no network but lo; Open MPI excludes lo by
# default. The names of its shared memory files do not include the node, so they must be where nodes
# do not share a directory: not in the machine's /dev/shm. There may be more ranks than CPUs.
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
    """The packages of an MPI, and paths within them.

    `headers` is the package of the headers and `include` their directory in it, with `{}` for the
    multiarch triplet. `libraries` are names below usr/lib/TRIPLET; only the first must exist.
    `mpirun` is the program that /usr/bin/mpirun links to, and `settings` is a settings file (path
    and content) for the sandbox.
    """

    packages: tuple[str, ...]
    headers: str
    include: str
    libraries: tuple[str, ...]
    mpirun: str
    settings: tuple[str, str] | None = None


OPEN_MPI = Mpi(
    ("openmpi-bin",),
    "libopenmpi-dev",
    "usr/lib/{}/openmpi/include",
    ("libmpi.so.40", "libopen_mpi.so.40"),  # since Open MPI 6 the second has the variables
    "mpirun.openmpi",
    ("etc/openmpi/openmpi-mca-params.conf", _OPEN_MPI_SETTINGS),
)
MPICH = Mpi(
    ("mpich",),
    "libmpich-dev",
    "usr/include/{}/mpich",
    ("libmpich.so.12",),
    "mpirun.mpich",
)
BY_NAME = {"openmpi": OPEN_MPI, "mpich": MPICH}
SOURCES = (Path(__file__), PROBE)


def fill(mpi: Mpi, layout: Layout, root: Path) -> None:
    """Write the packages' files and /usr/bin/mpi-probe below `root`."""
    cache = layout.cache / "packages"
    packages.unpack([*_EVERYWHERE, *mpi.packages], cache, root)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    # The packages' scripts, which would have made this link, have not run.
    (root / "usr/bin/mpirun").symlink_to(mpi.mpirun)
    if mpi.settings is not None:
        (root / mpi.settings[0]).write_text(mpi.settings[1])
    with tempfile.TemporaryDirectory(dir=layout.cache) as headers:
        packages.unpack_alone(mpi.headers, cache, Path(headers))
        _compile(mpi, Path(headers), root)


def _compile(mpi: Mpi, headers: Path, root: Path) -> None:
    triplet = _checked(["gcc", "-print-multiarch"]).strip()
    first, *others = (root / "usr/lib" / triplet / name for name in mpi.libraries)
    libraries = map(str, (first, *(path for path in others if path.exists())))
    # The libraries' own dependencies are in the image, not on this machine.
    link = [*libraries, "-Wl,--allow-shlib-undefined", "-o", str(root / "usr/bin/mpi-probe")]
    include = f"-I{headers / mpi.include.format(triplet)}"
    _checked(["gcc", "-O2", include, str(PROBE), *link])


def _checked(argv: list[str]) -> str:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise SandboxError(f"{argv[0]}: {lines[0]}", f"by hand: {' '.join(argv)}")
    return done.stdout
