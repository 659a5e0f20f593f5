"""`python -m tests.bench.tree`: make the tree for `tests.bench.images` once, with network.

A Debian system with compilers, Python and an MPI, below the sandbox's cache. mmdebstrap leaves the
order of the installation to apt; that of debootstrap fails for the development files of Open MPI.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

_PACKAGES = "gcc,g++,gfortran,python3,python3-numpy,python3-scipy,openmpi-bin,libopenmpi-dev,git"
_SUITE = "bookworm"
_PROGRAMS = ("gcc", "python3", "mpicc")
_LEAST = 500 << 20


def made() -> Path:
    """Return the tree; build it first if it does not exist."""
    cache = Path(os.environ.get("CE_SANDBOX_DIR", "/var/lib/ce-sandbox")) / "cache"
    tree = cache / "bench-debian"
    if not tree.exists():
        print(f"bench: making {tree} (once)", flush=True)
        draft = cache / "bench-debian.new"
        shutil.rmtree(draft, ignore_errors=True)
        cache.mkdir(parents=True, exist_ok=True)
        options = ["--quiet", "--mode=root", "--variant=minbase", f"--include={_PACKAGES}"]
        subprocess.run(["mmdebstrap", *options, _SUITE, str(draft)], check=True)
        _check(draft)
        draft.rename(tree)
    return tree


def _check(tree: Path) -> None:
    """Raise SystemExit unless the tree has the programs and the size that the figures assume."""
    missing = [name for name in _PROGRAMS if not os.path.lexists(tree / "usr/bin" / name)]
    size = int(subprocess.check_output(["du", "-sxB1", str(tree)], text=True).split()[0])
    if missing or size < _LEAST:
        raise SystemExit(f"bench: {tree}: {size >> 20} MiB, without {', '.join(missing) or '-'}")


if __name__ == "__main__":
    made()
    sys.exit(0)
