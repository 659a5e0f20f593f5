"""Libraries of the node in images of all kinds: what programs load afterwards, and that they do."""

import shutil
from pathlib import Path

import pytest

from tests.integration.engine import Engine
from tests.integration.libraries import TRIPLE, Place, build, edf_text, probe, run

LIBRARIES = Path("usr/lib") / TRIPLE
FI_INFO = "/usr/bin/fi_info"
FABRIC = f"/{LIBRARIES}/libfabric.so.1"
FABRIC_HOOK = f"""
[edits.host]
libraries = [{{ files = ["{FABRIC}"], place = "replace" }}]
refresh = true
[checks.loadable]
kind = "loadable"
subject = "libfabric.so.1"
"""
OWN = "/.container-engine/lib"


def fabric(tree: Path, version: str, newest: int, places: str = str(LIBRARIES)) -> None:
    """A libfabric of the image's own, whose programs want FABRIC_1.0 to FABRIC_1.<newest>."""
    soname = f"libfabric.so.{version.partition('.')[0]}"
    versions = [f"FABRIC_1.{number}" for number in range(newest + 1)]
    build(tree / places / f"libfabric.so.{version}", soname, versions=versions)
    (tree / places / soname).symlink_to(f"libfabric.so.{version}")


def not_merged(tree: Path) -> None:
    """/lib and /lib64 are directories again, with the C library in them."""
    for name in ("lib", "lib64"):
        (tree / name).unlink()
    (tree / "lib").mkdir()
    shutil.move(tree / LIBRARIES, tree / "lib" / TRIPLE)
    (tree / LIBRARIES).mkdir()
    if (tree / "usr/lib64").is_dir():
        shutil.move(tree / "usr/lib64", tree / "lib64")


def without_loaders_tools(tree: Path) -> None:
    (tree / "etc/ld.so.cache").unlink()
    (tree / "usr/sbin/ldconfig").unlink()


def image(place: Place, kind: str) -> Path:
    made = place.dir / f"{kind}.sqsh"
    if made.exists():
        return made
    tree = place.variant(kind)
    if kind == "older":
        fabric(tree, "1.10.0", 3)
    elif kind == "newer":
        fabric(tree, "1.99.0", 9)
    elif kind == "major":
        fabric(tree, "2.0.0", 9)
    elif kind == "odd":
        # the one that a program of the image names is reached by links only
        not_merged(tree)
        without_loaders_tools(tree)
        fabric(tree, "1.10.0", 3, "opt/store/deep")
        (tree / "opt/mpi/lib").mkdir(parents=True)
        (tree / "opt/mpi/lib/libfabric.so.1").symlink_to("/opt/link/../store/deep/libfabric.so.1")
        (tree / "opt/link").symlink_to("../../../../opt/store")
    if kind in ("older", "newer", "major"):
        run("ldconfig", "-r", tree)
    return place.squash(tree)


KINDS = ["none", "older", "newer", "major", "odd"]
# which libfabric fi_info shows, what the loader says of it, and whether all that is beside loads
SCRIPT = f"""
{FI_INFO} --version
ldd {FI_INFO}
for library in {OWN}/*; do PROBE "$library" >/dev/null || echo "$library does not load"; done
"""


@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read-only"])
@pytest.mark.parametrize("kind", KINDS)
def test_fi_info_shows_the_nodes_libfabric_and_all_that_it_needs_loads(
    engine: Engine, place: Place, kind: str, writable: bool
) -> None:
    place.hook(FABRIC_HOOK)
    program = probe(place.dir)
    text = f"writable = {str(writable).lower()}\n"
    edf = engine.edf(text + edf_text("fabric", mounts=[FI_INFO, program]), image(place, kind))
    done = place.engine(engine).run(edf, "bash", "-c", SCRIPT.replace("PROBE", str(program)))
    assert "libfabric: 1.17.0\n" in done.stdout, done.stderr
    assert "not found" not in done.stdout
    assert "does not load" not in done.stdout
    warned = "programs of the image that need FABRIC_1.9 of libfabric.so.1 will not start"
    assert (warned in done.stderr) == (kind == "newer"), done.stderr
    assert len(done.stderr.splitlines()) == (kind == "newer"), done.stderr
