"""Images for tests of libraries: with a libfabric or a CUDA runtime of various kinds."""

import shutil
from pathlib import Path

from tests.integration.libraries import TRIPLE, Place, build, run

LIBRARIES = Path("usr/lib") / TRIPLE


def fabric(tree: Path, version: str, newest: int, places: str = str(LIBRARIES)) -> None:
    """Add a libfabric that offers the symbol versions FABRIC_1.0 to FABRIC_1.<newest>."""
    soname = f"libfabric.so.{version.partition('.')[0]}"
    versions = [f"FABRIC_1.{number}" for number in range(newest + 1)]
    build(tree / places / f"libfabric.so.{version}", soname, versions=versions)
    (tree / places / soname).symlink_to(f"libfabric.so.{version}")


def not_merged(tree: Path) -> None:
    """Turn /lib and /lib64 into directories again, with the C library in them."""
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
        # A program of the image names its libfabric by a path that only links lead to.
        not_merged(tree)
        without_loaders_tools(tree)
        fabric(tree, "1.10.0", 3, "opt/store/deep")
        (tree / "opt/mpi/lib").mkdir(parents=True)
        (tree / "opt/mpi/lib/libfabric.so.1").symlink_to("/opt/link/../store/deep/libfabric.so.1")
        (tree / "opt/link").symlink_to("../../../../opt/store")
    if kind in ("older", "newer", "major"):
        run("ldconfig", "-r", tree)
    return place.squash(tree)


def cudart(tree: Path, major: int, link: bool) -> None:
    """Add NVIDIA's runtime library as images have it; developers' images have `link` as well."""
    name = f"libcudart.so.{major}"
    build(tree / LIBRARIES / f"{name}.2.0", name, versions=[name])
    (tree / LIBRARIES / name).symlink_to(f"{name}.2.0")
    if link:
        (tree / LIBRARIES / "libcudart.so").symlink_to(name)
    run("ldconfig", "-r", tree)


def cuda_image(place: Place, major: int = 12, link: bool = True) -> Path:
    label = f"cuda{major}{'' if link else '-without-link'}"
    made = place.dir / f"{label}.sqsh"
    if not made.exists():
        tree = place.variant(label)
        cudart(tree, major, link)
        place.squash(tree)
    return made
