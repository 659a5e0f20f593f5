"""Find out from an MPI library's file whether programs that use it can be started by `srun --mpi=`.

Only certain results are reported: an unknown library is assumed to support everything.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# MPICH and its derivatives, whose own client supports PMI 1 and 2; Open MPI 4 and 5
_MPICH, _OPEN_MPI = ("libmpi.so.12", "libmpich.so.12"), ("libmpi.so.40",)
LIBRARIES = (*_MPICH, *_OPEN_MPI)
# Open MPI's parts for PMI 1 and 2 are files of their own, or built into this library that it needs
BELOW = "libopen-pal."
COMPONENTS = ("openmpi*/mca_pmix_s[12].so", "openmpi/lib/openmpi*/mca_pmix_s[12].so")
# strings in an MPI that loads PMIx or another library for it, or has PMIx built in; the name
# PMIx_Init proves nothing, because newer MPICH versions have it in a message
_PMIX = (b"libpmi", b"PMIX_MCA")
_NAMES = {"pmix": "PMIx", "pmi2": "PMI2"}


def unsupported(
    name: str, pmi: str, holds: Callable[[bytes], bool], *, has_components: bool
) -> str:
    """Return a message if the library certainly lacks `pmi` ("pmix" or "pmi2"), else "".

    `holds` searches for bytes in the library's file and in those BELOW it.
    """
    if pmi == "pmix":
        is_certain = name in _MPICH and holds(b"\0PMI_FD\0") and not any(map(holds, _PMIX))
    else:
        is_certain = name in _OPEN_MPI and not has_components and not holds(b"PMI2_Init")
    if not is_certain:
        return ""
    kind = "MPICH" if name in _MPICH else "Open MPI"
    return f"the image's {kind} ({name}) does not support {_NAMES[pmi]}"
