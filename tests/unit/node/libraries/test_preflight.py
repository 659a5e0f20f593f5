"""Tell from an MPI library's file how it can be started."""

import pytest

from container_engine.node.libraries.preflight import unsupported

MPICH = b"\0PMI_FD\0\0PMIx_Init failed %s\0"


@pytest.mark.parametrize("name", ["libmpi.so.12", "libmpich.so.12"])
def test_an_mpich_that_names_no_pmix_library_does_not_speak_pmix(name: str) -> None:
    said = unsupported(name, "pmix", MPICH.__contains__, has_components=False)
    assert said == f"the image's MPICH ({name}) does not support PMIx"


@pytest.mark.parametrize(
    "more", [b"\0libpmix.so.2\0", b"\0libpmi.so.0\0", b"\0PMIX_MCA_gds\0"], ids=str
)
def test_an_mpich_that_loads_a_library_for_pmix_is_not_reported(more: bytes) -> None:
    content = MPICH + more
    assert unsupported("libmpi.so.12", "pmix", content.__contains__, has_components=False) == ""


def test_an_mpi_of_the_same_name_that_is_no_mpich_is_left_in_peace() -> None:
    assert (
        unsupported("libmpi.so.12", "pmix", b"\0other\0".__contains__, has_components=False) == ""
    )


@pytest.mark.parametrize(
    ("content", "parts", "speaks"),
    [(b"PMIx_Init", False, False), (b"PMI2_Init", False, True), (b"PMIx_Init", True, True)],
)
def test_open_mpi_speaks_pmi2_by_itself_or_by_a_component(
    content: bytes, parts: bool, speaks: bool
) -> None:
    said = unsupported("libmpi.so.40", "pmi2", content.__contains__, has_components=parts)
    assert said == ("" if speaks else "the image's Open MPI (libmpi.so.40) does not support PMI2")


def test_all_others_speak_everything() -> None:
    for name, pmi in (("libmpi.so.40", "pmix"), ("libmpi.so.12", "pmi2")):
        assert unsupported(name, pmi, MPICH.__contains__, has_components=False) == ""
