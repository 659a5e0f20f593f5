"""An imported image equals Podman's, entry by entry.

The differences are documented: owners become root; device nodes and attributes that only root may
set are left out. Attributes without a value are not compared: Podman 4 leaves them out, as we do,
and Podman 5 keeps them.
"""

import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from container_engine.images import reference as oci_reference
from tests.integration.registry import RUN, Person, Registry
from tests.integration.trees import Entry, Podman, differences, entries, ours_mounted
from tests.unit.images import oci
from tests.unit.images.oci import Member, directory, hard_link, link, opaque, whiteout

LONG = "/".join(["n" * 220] * 18)  # 3977 characters
KERNELS_NUMBER = {"security.capability": "\x01\x00\x00\x02\x00\x20" + "\x00" * 14}

IMAGES: dict[str, Sequence[Sequence[Member]]] = {
    "whiteouts": [
        [directory("d"), Member("d/a"), Member("d/b"), directory("d/e"), Member("d/e/x")],
        [whiteout("d/a"), whiteout("d/e")],
        [Member("d/e", b"a file now")],
    ],
    "opaque": [
        [directory("d", 0o700), Member("d/a"), directory("d/e"), Member("d/e/x")],
        [directory("d", 0o750), opaque("d"), Member("d/new")],
        [directory("d/e")],
    ],
    "hardlinks": [
        [Member("a", b"first"), hard_link("b", "a"), directory("d"), hard_link("d/c", "a")],
        [hard_link("e", "a"), Member("x", b"x"), hard_link("y", "x")],
        [whiteout("a"), Member("x", b"other")],
    ],
    "links": [
        [directory("lib"), Member("lib/a"), directory("usr"), directory("usr/lib")],
        [whiteout("lib"), link("lib", "usr/lib"), Member("usr/lib/b")],
        [directory("lib"), Member("lib/c"), link("dangling", "/none"), link("loop", "loop")],
    ],
    "names": [[directory("ü"), Member("ü/€ 漢字"), Member("tab\tnew\nline"), Member("x" * 255)]],
    "long": [[Member(LONG, b"deep"), link("to", LONG[:3900])]],
    "itself": [
        [
            *(directory("usr"), directory("usr/bin"), link("usr/bin/X11", ".")),
            *(Member("usr/bin/a", b"a"), hard_link("usr/bin/b", "usr/bin/X11/a")),
        ],
        [directory("usr/bin"), Member("usr/bin/c")],
    ],
    "backslashes": [
        [directory("s"), Member(r"s/system-systemd\x2dcryptsetup.slice", b"x")],
        [Member("s/a\\b"), link("s/l", "a\\b"), hard_link("s/h", "s/a\\b")],
    ],
    "modes": [
        [directory("root", 0o700), Member("root/run", b"x", mode=0o700), directory("ro", 0o555)],
        [directory("nix/store", 0o555), Member("nix/store/x", mode=0o444), Member("ro/y")],
    ],
    "empty": [[], [Member("a")], [], [directory("d")], []],
    "nothing": [[]],
    "rewritten": [
        [directory("d", 0o700), Member("d/a"), Member("e"), Member("f"), directory("g")],
        [directory("e", 0o750), Member("e/x"), whiteout("f"), hard_link("b", "d/a"), Member("g")],
    ],
    "kinds": [
        [Member("f", b"\0" * 9_000_000 + b"end"), Member("pipe", kind=tarfile.FIFOTYPE)],
        [Member("null", kind=tarfile.CHRTYPE), Member("disk", kind=tarfile.BLKTYPE)],
        [directory("d", 0o1777), directory("d/none", 0), Member("d/0", mode=0)],
    ],
    "setuid": [[Member("u", b"u", mode=0o4755), Member("g", b"g", mode=0o2711)]],
    "attributes": [
        [Member("a", b"a", xattrs=(("user.x", "ü"), ("user.y", ""))), Member("b", b"b")],
        [directory("d")._replace(xattrs=(("user.of.directory", "v" * 300),))],
        [Member("c", b"c", xattrs=tuple(KERNELS_NUMBER.items()))],
    ],
    "replaced": [
        [directory("a"), Member("a/x"), Member("b"), link("c", "a")],
        [Member("a", b"file"), directory("b"), Member("b/y"), directory("c"), Member("c/z")],
        [directory("a"), Member("a/w")],
    ],
    "implied": [[Member("a/b/c/d")], [Member("a/b/e")], [directory("a/b", 0o700)]],
}


Compare = Callable[[str], dict[str, Entry]]


@pytest.fixture
def compared(podman: Podman, person: Person, server: str, tmp_path: Path) -> Compare:
    """Return a function that checks that Podman has an image's entries, and returns them."""

    def compare(reference: str) -> dict[str, Entry]:
        image = person.get(registry_image(reference))
        with (
            podman.mounted(reference) as theirs,
            ours_mounted(server, image, tmp_path / "m") as ours,
        ):
            found = entries(ours)
            assert differences(found, entries(theirs)) == []
        (tmp_path / "m").rmdir()
        return found

    return compare


def registry_image(reference: str) -> oci_reference.RegistryImage:
    image = oci_reference.parse(reference, "/")
    assert isinstance(image, oci_reference.RegistryImage)
    return image


@pytest.mark.parametrize("name", IMAGES)
def test_the_files_are_those_that_podman_makes(
    registry: Registry, compared: Compare, tmp_path: Path, name: str
) -> None:
    reference = registry.push(tmp_path / "i", f"as-podman/{name}:1", *map(list, IMAGES[name]))
    found = compared(reference)
    assert bool(found) == (name != "nothing")


@pytest.mark.parametrize("compressor", ["zstd", "none"])
def test_the_compression_of_layers_makes_no_difference(
    registry: Registry, compared: Compare, tmp_path: Path, compressor: str
) -> None:
    layers = [list(members) for members in IMAGES["whiteouts"]]
    name = f"as-podman/{compressor}:1"
    reference = registry.push(tmp_path / "i", name, *layers, compressor=compressor)
    compared(reference)


def test_a_manifest_of_dockers_gives_the_same_files_and_configuration(
    registry: Registry, compared: Compare, tmp_path: Path
) -> None:
    (tmp_path / "i").mkdir()
    oci.layout(tmp_path / "i", IMAGES["whiteouts"], RUN)
    reference = f"{registry.address}/as-podman/docker:2"
    copy = ["skopeo", "copy", "--quiet", "--format", "v2s2", f"oci:{tmp_path}/i:latest"]
    subprocess.run([*copy, f"docker://{reference}"], env=registry.env, check=True)
    compared(reference)


def test_of_an_index_the_image_for_the_nodes_is_taken(
    registry: Registry, person: Person, compared: Compare, server: str, tmp_path: Path
) -> None:
    (tmp_path / "i").mkdir()
    oci.layout_of_several(tmp_path / "i", {"s390x": [[Member("other")]], "": [[Member("here")]]})
    reference = f"{registry.address}/as-podman/index:1"
    copy = ["skopeo", "copy", "--quiet", "--all", f"oci:{tmp_path}/i:latest"]
    subprocess.run([*copy, f"docker://{reference}"], env=registry.env, check=True)
    assert set(compared(reference)) == {"here"}
    here = person.get(registry_image(reference))
    person.store = person.store._replace(arch="s390x")
    other = person.get(registry_image(reference))
    with ours_mounted(server, other, tmp_path / "o") as mounted:
        assert set(entries(mounted)) == {"other"}
    assert Path(here).exists()
    assert here != other


def test_a_tag_and_a_digest_together_mean_the_digest(
    registry: Registry, person: Person, podman: Podman, server: str, tmp_path: Path
) -> None:
    reference = registry.push(tmp_path / "1", "as-podman/moved:1", [Member("one")])
    asked = ["skopeo", "inspect", "--format", "{{.Digest}}", f"docker://{reference}"]
    done = subprocess.run(asked, env=registry.env, check=True, capture_output=True, text=True)
    registry.push(tmp_path / "2", "as-podman/moved:1", [Member("two")])
    pinned = f"{reference}@{done.stdout.strip()}"
    image = person.get(registry_image(pinned))
    with (
        podman.mounted(pinned.replace(":1@", "@")) as theirs,
        ours_mounted(server, image, tmp_path / "m") as ours,
    ):
        assert set(entries(ours)) == set(entries(theirs)) == {"one"}


def test_without_tar2sqfs_the_files_are_the_same(
    registry: Registry, person: Person, server: str, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    for tool in ("skopeo", "mksquashfs", "zstd"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    for name in ("whiteouts", "hardlinks", "names", "attributes", "kinds", "nothing"):
        layers = map(list, IMAGES[name])
        reference = registry.push(tmp_path / name, f"as-podman/two-{name}:1", *layers)
        usual = person.get(registry_image(reference))
        other = Person(registry, tmp_path / f"store-{name}")
        other.importer = other.with_env({**registry.env, "PATH": str(tmp_path / "bin")})
        plain = other.get(registry_image(reference))
        with (
            ours_mounted(server, usual, tmp_path / f"{name}-1") as first,
            ours_mounted(server, plain, tmp_path / f"{name}-2") as second,
        ):
            assert entries(first) == entries(second)
