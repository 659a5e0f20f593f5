"""The tree that the layers of an image make together."""

import io
import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.images.pack.layers import LayerFile
from container_engine.images.pack.merge_seek import write_merged
from container_engine.images.policy import UNLIMITED
from tests.unit.images.oci import (
    MORE_COMPRESSORS,
    Member,
    directory,
    hard_link,
    layer,
    link,
    opaque,
    whiteout,
)

NULL, AUFS_FILE = Member("n", kind=tarfile.CHRTYPE), ".wh..wh.plnk/1.2"
D, D_A, D_B = directory("d"), Member("d/a", b"1"), Member("d/b", b"2")


def merged(where: Path, *layers: Sequence[Member]) -> list[tarfile.TarInfo]:
    paths = []
    for number, members in enumerate(layers):
        paths.append(where / f"layer{number}")
        paths[-1].write_bytes(layer(members))
    return written(paths)


def written(paths: Sequence[Path]) -> list[tarfile.TarInfo]:
    stream = io.BytesIO()
    write_merged(list(map(LayerFile, map(str, paths))), stream, os.environ, UNLIMITED.account())
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        return archive.getmembers()


def names(members: Sequence[tarfile.TarInfo]) -> set[str]:
    return {member.name for member in members}


# Each of these gives the same tree as `podman pull` into a store of the same layers.
CASES: dict[str, tuple[list[list[Member]], set[str]]] = {
    "a whiteout hides a file": ([[D, D_A, D_B], [whiteout("d/a")]], {"d", "d/b"}),
    "a whiteout hides a directory": ([[D, D_A], [whiteout("d")]], set()),
    "a whiteout of nothing": ([[D], [whiteout("d/x"), whiteout("y")]], {"d"}),
    "a directory that is hidden and made again": (
        [[D, D_A], [whiteout("d"), D, D_B]],
        {"d", "d/b"},
    ),
    "an opaque directory": ([[D, D_A], [D, opaque("d"), D_B]], {"d", "d/b"}),
    "an opaque directory that says so late": (
        [[D, D_A, directory("d/s"), Member("d/s/x")], [D, directory("d/s"), D_B, opaque("d")]],
        {"d", "d/b", "d/s"},
    ),
    "a hard link whose other name is hidden": (
        [[Member("a", b"1"), hard_link("b", "a")], [whiteout("a")]],
        {"b"},
    ),
    "a link over a directory": ([[D, D_A], [link("d", "/x")]], {"d"}),
    "a file over a directory": ([[D, D_A], [Member("d")]], {"d"}),
    "a directory over a link": ([[directory("t"), link("d", "t")], [D, D_A]], {"d", "d/a", "t"}),
    "a path through a link of the same layer": (
        [[directory("usr/lib"), link("lib", "/usr/lib"), Member("lib/x")]],
        {"usr", "usr/lib", "usr/lib/x", "lib"},
    ),
    "a path through a relative link": (
        [[directory("a/b"), directory("c"), link("a/l", "../c"), Member("a/l/x")]],
        {"a", "a/b", "a/l", "c", "c/x"},
    ),
    "directories that no layer has": (
        [[Member("a/b/c")], [Member("./a/b/d"), Member("/e")]],
        {"a", "a/b", "a/b/c", "a/b/d", "e"},
    ),
    "an empty layer": ([[Member("a")], []], {"a"}),
    "a file that a layer has twice": ([[Member("a", b"1"), Member("a", b"2")]], {"a"}),
    "a device in a file's place": ([[Member("n"), D_A], [NULL]], {"d", "d/a"}),
    "a device in a directory's place": ([[directory("n"), Member("n/x")], [NULL]], set()),
    "a file in a device's place": ([[NULL], [Member("n")]], {"n"}),
    "a hard link to a device": ([[NULL, hard_link("m", "n"), Member("a")]], {"a"}),
    "a hard link to a device of a lower layer": ([[NULL], [hard_link("m", "n")]], set()),
    "a link that leads to a device": ([[NULL, link("l", "n")]], {"l"}),
    "whiteouts of all types": (
        [
            [D, D_A, D_B, *map(Member, "efg")],
            [
                whiteout("d/a"),
                hard_link(".wh.e", "d/.wh.a"),
                link(".wh.f", "x"),
                directory("d/.wh.b"),
                Member(".wh.g", kind=tarfile.CHRTYPE),
            ],
        ],
        {"d"},
    ),
    "what AUFS leaves in a layer": (
        [[Member(".wh..wh.aufs"), directory(".wh..wh.orph"), Member(".wh..wh.orph/x"), D]],
        {"d"},
    ),
    "a hard link to a file that AUFS keeps aside": (
        [[directory(".wh..wh.plnk"), Member(".wh..wh.plnk/1.2"), hard_link("a", AUFS_FILE)]],
        {"a"},
    ),
    "a device": ([[Member("n", kind=tarfile.CHRTYPE), Member("f", kind=tarfile.FIFOTYPE)]], {"f"}),
}


@pytest.mark.parametrize(("layers", "expected"), CASES.values(), ids=CASES.keys())
def test_layers_are_laid_on_each_other(
    tmp_path: Path, layers: list[list[Member]], expected: set[str]
) -> None:
    assert names(merged(tmp_path, *layers)) == expected


def test_every_file_has_the_content_of_the_layer_it_is_from(tmp_path: Path) -> None:
    (tmp_path / "low").write_bytes(layer([D, Member("d/a", b"old"), Member("d/b", b"low")]))
    (tmp_path / "high").write_bytes(layer([Member("d/a", b"new")]))
    stream = io.BytesIO()
    write_merged(
        [LayerFile(str(tmp_path / name)) for name in ("low", "high")],
        stream,
        os.environ,
        UNLIMITED.account(),
    )
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        contents = {m.name: archive.extractfile(m) for m in archive.getmembers() if m.isreg()}
        assert {name: file.read() for name, file in contents.items() if file} == {
            "d/a": b"new",
            "d/b": b"low",
        }


def test_parents_come_before_their_children(tmp_path: Path) -> None:
    seen: set[str] = set()
    for member in merged(tmp_path, [Member("a/b/c/d"), directory("a/b"), directory("a", 0o700)]):
        assert os.path.dirname(member.name) in seen | {""}
        seen.add(member.name)


def test_hard_links_stay_links_until_one_name_gets_another_file(tmp_path: Path) -> None:
    found = merged(
        tmp_path,
        [Member("a", b"1"), hard_link("b", "a"), hard_link("c", "./a")],
        [Member("a", b"2")],
    )
    kinds = {member.name: (member.islnk(), member.linkname) for member in found}
    assert kinds == {"a": (False, ""), "b": (False, ""), "c": (True, "b")}


def test_owners_become_root_and_modes_and_times_stay(tmp_path: Path) -> None:
    found = merged(tmp_path, [directory("t", 0o1777), Member("s", b"x", mode=0o4755)])
    assert [(m.uid, m.gid, m.mode) for m in found] == [(0, 0, 0o1777), (0, 0, 0o4755)]
    assert {m.mtime for m in found} == {1_600_000_000}


def test_names_of_any_length_and_encoding_survive(tmp_path: Path) -> None:
    long = "/".join(["n" * 250] * 16)
    awkward = {"ü ä", "a\nb", "\udcff", long}
    found = merged(tmp_path, [Member(name) for name in sorted(awkward)] + [link("l", long)])
    assert awkward <= names(found)
    assert next(m for m in found if m.name == "l").linkname == long


@pytest.mark.parametrize("compressor", MORE_COMPRESSORS)
def test_layers_may_be_compressed(
    tmp_path: Path, compressor: str, need_tool: Callable[[str], str]
) -> None:
    need_tool("zstd")
    (tmp_path / "l").write_bytes(
        MORE_COMPRESSORS[compressor][1](layer([Member("a", b"x" * 99999)]))
    )
    assert names(written([tmp_path / "l"])) == {"a"}


@pytest.mark.parametrize("compressor", MORE_COMPRESSORS)
def test_a_damaged_layer_is_named(
    tmp_path: Path, compressor: str, need_tool: Callable[[str], str]
) -> None:
    need_tool("zstd")
    whole = MORE_COMPRESSORS[compressor][1](layer([Member("a", os.urandom(99999))]))
    (tmp_path / "l").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=f"^layer {tmp_path}/l: damaged: "):
        written([tmp_path / "l"])


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([Member("../x")], "layer 0: the path '../x' leads out of the image"),
        ([hard_link("a", "b")], "layer 0: 'a' is a hard link to 'b', which is not a file"),
        ([hard_link("a", "/")], "layer 0: 'a' is a hard link to '/', which is not a file"),
        ([link("a", "b"), link("b", "a"), Member("a/x")], "layer 0: a loop of links at 'a'"),
        ([Member(".")], "layer 0: a file in place of the root directory"),
    ],
)
def test_an_impossible_layer_is_refused(
    tmp_path: Path, members: list[Member], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        merged(tmp_path, members)
    assert caught.value.message == message


def test_a_link_that_points_outside_stays_inside(tmp_path: Path) -> None:
    found = merged(tmp_path, [link("up", "../../.."), Member("up/x")])
    assert names(found) == {"up", "x"}
