"""The quick merge of layers has the same result as the thorough one."""

import io
import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from container_engine.base.errors import UserError
from container_engine.images.pack import layers, merge_seek, merge_stream, tar_header
from container_engine.images.pack.merge_stream import UnusualError
from container_engine.images.pack.tar_header import DamagedError
from container_engine.images.pack.tar_stream import Reader, Stream
from container_engine.images.policy import UNLIMITED
from tests.unit.images import oci
from tests.unit.images.oci import Member, directory, hard_link, link, opaque, whiteout
from tests.unit.images.test_merge_seek import CASES

# Cases in which an earlier member must be read again.
UNUSUAL = {
    "a hard link whose other name is hidden",
    "a file that a layer has twice",
    "a hard link to a device of a lower layer",
    "a hard link to a file that AUFS keeps aside",
}


def quick(archives: Sequence[bytes]) -> bytes:
    out = io.BytesIO()
    merger = merge_stream.Merger(out)
    for number, data in reversed(list(enumerate(archives))):
        merger.add_layer(Reader(Stream([data])), number)
    merger.finish()
    return out.getvalue()


def thorough(where: Path, archives: Sequence[bytes]) -> bytes:
    paths = [where / f"{number}" for number in range(len(archives))]
    for path, data in zip(paths, archives, strict=True):
        path.write_bytes(data)
    out = io.BytesIO()
    merge_seek.write_merged(
        list(map(layers.LayerFile, map(str, paths))), out, os.environ, UNLIMITED.account()
    )
    return out.getvalue()


def tree(archive: bytes) -> dict[str, tuple[bytes, int, str, bytes]]:
    """Return type, mode, target and content of each path; for a hard link those of its target."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        for member in opened.getmembers():
            assert member.name not in found
            original = member
            while original.islnk():
                original = opened.getmember(original.linkname)
            assert (member.uid, member.gid) == (0, 0)
            content = opened.extractfile(original) if original.isreg() else None
            data = content.read() if content else b""
            target = original.linkname
            found[member.name] = (original.type, original.mode, target, data)
    return found


def numbered(plan: list[list[Member]]) -> list[bytes]:
    """Return the layers as archives, with each file's path and layer as its content."""
    return [
        oci.layer(
            [
                m._replace(content=f"{m.path} {n}".encode()) if m.kind == tarfile.REGTYPE else m
                for m in members
            ]
        )
        for n, members in enumerate(plan)
    ]


@pytest.mark.parametrize("name", sorted(CASES.keys() - UNUSUAL))
def test_the_quick_way_gives_the_same_tree(tmp_path: Path, name: str) -> None:
    archives = numbered(CASES[name][0])
    assert tree(quick(archives)) == tree(thorough(tmp_path, archives))


@pytest.mark.parametrize("name", sorted(UNUSUAL))
def test_the_quick_way_refuses_unusual_layers(name: str) -> None:
    with pytest.raises(UnusualError):
        quick(numbered(CASES[name][0]))


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
MEMBERS = st.one_of(
    PATHS.map(Member),
    PATHS.map(lambda path: Member(path, mode=0o4755)),
    st.builds(directory, PATHS, st.sampled_from([0o755, 0o700])),
    st.builds(link, PATHS, st.sampled_from(["a", "/b", "../c", "/a/b"])),
    st.builds(hard_link, PATHS, PATHS),
    st.builds(whiteout, PATHS),
    st.builds(opaque, PATHS),
    PATHS.map(lambda path: Member(path, kind=tarfile.CHRTYPE)),
    st.builds(hard_link, st.sampled_from([".wh.a", "a/.wh.b"]), PATHS),
    st.sampled_from([".wh.a", "a/.wh.b", ".wh..wh.plnk"]).map(directory),
    st.builds(hard_link, PATHS, st.just(".wh..wh.plnk/1")),
    st.just(Member(".wh..wh.plnk/1")),
)


@settings(max_examples=300, deadline=None)
@given(plan=st.lists(st.lists(MEMBERS, max_size=6), min_size=1, max_size=3))
@example(plan=[[directory("a", 0o700)], [whiteout("a")], [Member("a/b")]])
@example(plan=[[Member("a/a"), Member("a/b")], [Member("a")], [Member("a/a")]])
@example(plan=[[directory("a", 0o700), Member("a/b")], [opaque("a"), Member("a/c")]])
def test_any_layers_give_the_same_tree_either_way(
    tmp_path_factory: pytest.TempPathFactory, plan: list[list[Member]]
) -> None:
    archives = numbered(plan)
    try:
        found = tree(quick(archives))
    except (UnusualError, UserError):
        return
    try:
        expected = tree(thorough(tmp_path_factory.getbasetemp(), archives))
    except UserError:
        return  # a link whose target is hidden anyway
    assert found == expected


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_every_usual_form_are_read(form: int) -> None:
    stream = io.BytesIO()
    long = "/".join(["n" * 250] * 16)
    names = ["a", long, "ü" * 60, "\udcff", "x" * 101, "p" * 80 + "/" + "q" * 90]
    with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
        for number, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = number, 1_600_000_000.5, 0o640
            archive.addfile(info, io.BytesIO(b"c" * number))
            shortcut = tarfile.TarInfo(f"{number}.link")
            shortcut.type, shortcut.linkname = tarfile.SYMTYPE, name
            archive.addfile(shortcut)
    with tarfile.open(fileobj=io.BytesIO(quick([stream.getvalue()]))) as merged:
        files = [m for m in merged.getmembers() if m.isreg()]
        assert [(m.name, m.size, m.mode) for m in files] == [
            (name, number, 0o640) for number, name in enumerate(names)
        ]
        assert [m.linkname for m in merged.getmembers() if m.issym()] == names
        assert {m.mtime for m in files} == {1_600_000_000}


# the oldest number and the zero time of Go, a corrupt one of a backup, and times after 2106
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize(
    ("seconds", "kept"),
    [
        *((old, 0) for old in (-(1 << 63), -62_135_596_800, -6_795_364_579, -1)),
        *((late, (1 << 32) - 1) for late in (1 << 32, 7_258_118_400, (1 << 63) - 1)),
    ],
)
def test_a_time_without_a_number_in_squashfs_becomes_the_nearest(
    seconds: int, kept: int, form: Literal[1, 2]
) -> None:
    info = tarfile.TarInfo("a")
    info.mtime = seconds
    with tarfile.open(fileobj=io.BytesIO(quick([info.tobuf(form) + bytes(1024)]))) as merged:
        assert [member.mtime for member in merged] == [kept]


def test_sizes_beyond_eight_gigabytes_survive() -> None:
    entry = tar_header.Entry(b"f", tar_header.FILE, 0o644, 0, 9 << 30, b"")
    found = next(iter(Reader(Stream([tar_header.header(entry)]))))
    assert found == entry


def test_attributes_of_users_are_kept_either_way(tmp_path: Path) -> None:
    attributes = {"user.a": "ü", "user.none": "", "user.overlay.opaque": "y", "trusted.b": "x"}
    low = [
        Member("f", b"f", xattrs=tuple(attributes.items())),
        directory("d")._replace(xattrs=(("user.only", "v" * 300),)),
    ]
    archives = list(map(oci.layer, (low, [Member("other")])))
    for merged in (quick(archives), thorough(tmp_path, archives)):
        with tarfile.open(fileobj=io.BytesIO(merged)) as archive:
            assert archive.getmember("f").pax_headers == {"SCHILY.xattr.user.a": "ü"}
            found = archive.getmember("d").pax_headers
            assert found == {"SCHILY.xattr.user.only": "v" * 300}


def test_devices_are_left_out() -> None:
    archive = oci.layer([Member("n", kind=tarfile.CHRTYPE), Member("b", kind=tarfile.BLKTYPE)])
    assert tree(quick([archive])) == {}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:700], "it is cut short"),
        (lambda data: b"x" + data[1:], "a header's checksum is wrong"),
    ],
)
def test_a_damaged_archive_is_noticed(change: Callable[[bytes], bytes], reason: str) -> None:
    archive = change(oci.layer([Member("a", b"x" * 1000)]))
    with pytest.raises(DamagedError, match=reason):
        quick([archive])


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([Member("../x")], "layer 0: the path '../x' leads out of the image"),
        ([link("a", "b"), link("b", "a"), Member("a/x")], "layer 0: a loop of links at 'a'"),
        ([Member(".")], "layer 0: a file in place of the root directory"),
    ],
)
def test_an_impossible_layer_is_refused_with_the_same_words(
    members: list[Member], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        quick([oci.layer(members)])
    assert caught.value.message == message


@pytest.mark.parametrize("compressor", oci.MORE_COMPRESSORS)
@pytest.mark.parametrize("pieces", [1, 3])
def test_layers_are_uncompressed_as_they_are_read(
    tmp_path: Path, compressor: str, pieces: int, need_tool: Callable[[str], str]
) -> None:
    need_tool("zstd")
    content = os.urandom(1_500_000)
    parts = [content[n::pieces] for n in range(pieces)]
    (tmp_path / "l").write_bytes(b"".join(map(oci.MORE_COMPRESSORS[compressor][1], parts)))
    read: list[int] = []
    with layers.plain(layers.LayerFile(str(tmp_path / "l")), os.environ, read.append) as stream:
        assert stream.take(1 << 30) == b"".join(parts)
    assert sum(read) == (tmp_path / "l").stat().st_size


@pytest.mark.parametrize("compressor", ["gzip", "zstd"])
def test_a_layer_that_is_cut_short_is_named(
    tmp_path: Path, compressor: str, need_tool: Callable[[str], str]
) -> None:
    need_tool("zstd")
    whole = oci.MORE_COMPRESSORS[compressor][1](os.urandom(99999))
    (tmp_path / "l").write_bytes(whole[: len(whole) // 2])
    with (
        pytest.raises(UserError, match=f"^layer {tmp_path}/l: damaged: "),
        layers.plain(layers.LayerFile(str(tmp_path / "l")), os.environ, lambda _n: None) as stream,
    ):
        stream.drain()


def test_a_layer_with_another_content_than_its_name_says_is_removed(tmp_path: Path) -> None:
    wrong = tmp_path / ("0" * 64)
    wrong.write_bytes(b"x")
    with pytest.raises(UserError, match="does not match its digest"):
        layers.Verification([str(wrong)]).finish()
    assert not wrong.exists()


def test_names_with_dots_are_cleaned_either_way(tmp_path: Path) -> None:
    low = [Member("opt/a"), Member("opt/b"), directory("opt/d"), Member("opt/d/x")]
    high = [
        Member("opt/none/../y", b"y"),
        hard_link("opt/l", "opt/../none/../opt//y"),
        Member("opt/none/../.wh.a"),
        Member("opt/d/x/../.wh..wh..opq"),
        Member("/../../top"),
        directory("./opt/../other/", 0o700),
    ]
    archives = list(map(oci.layer, (low, high)))
    found = tree(quick(archives))
    assert found.keys() == {"opt", "opt/b", "opt/y", "opt/l", "opt/d", "top", "other"}
    assert found["opt/l"] == found["opt/y"] == (tarfile.REGTYPE, 0o644, "", b"y")
    assert found == tree(thorough(tmp_path, archives))


UP = "the path '{}' leads out of the image"
DEEP = "'" + "a/" * 30 + "…' is more than 256 directories deep"
IMPOSSIBLE: dict[str, tuple[Member, str]] = {
    "up": (Member("a/../../x"), UP.format("a/../../x")),
    "a whiteout above": (Member("../.wh.a"), UP.format("../.wh.a")),
    "a hard link to above": (hard_link("b", "d/../../f"), UP.format("d/../../f")),
    "just too deep": (Member("a/" * 256 + "a"), DEEP),
    "deep enough for the stack": (Member("a/" * 2000 + "a"), DEEP),
    "far too deep": (
        Member("a/" * 200_000 + "a"),
        "the path '" + "a/" * 30 + "…' has more than 4095 bytes",
    ),
    "a long name": (
        Member("a/" + "n" * 256),
        "a name in 'a/" + "n" * 58 + "…' has more than 255 bytes",
    ),
    "a long target": (
        link("l", "t" * 4096),
        "the path '" + "t" * 60 + "…' has more than 4095 bytes",
    ),
    "no target": (link("l", ""), "a symbolic link that leads nowhere"),
    "a hard link as the root": (hard_link(".", "f"), "a file in place of the root directory"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_path_that_cannot_be_is_damage_either_way(tmp_path: Path, name: str) -> None:
    member, message = IMPOSSIBLE[name]
    archives = [oci.layer([Member("f"), member])]
    for way in (quick, lambda found: thorough(tmp_path, found)):
        with pytest.raises(UserError) as caught:
            way(archives)
        assert (caught.value.message, caught.value.see) == (f"layer 0: {message}", "image-damaged")


def test_links_make_no_path_deeper_than_layers_may_have_it(tmp_path: Path) -> None:
    below = "/".join(["a"] * 250)
    archives = [oci.layer([link("a/l", below), Member("a/l/l/l"), Member(f"a/l/{below}/x")])]
    for way in (quick, lambda found: thorough(tmp_path, found)):
        with pytest.raises(UserError, match="is more than 256 directories deep"):
            way(archives)


def test_the_deepest_and_longest_paths_are_kept_either_way(tmp_path: Path) -> None:
    deep, long = "a/" * 255 + "a", "/".join(["n" * 255] * 15) + "/" + "m" * 255
    assert len(long) == 4095
    low = [Member(deep), Member(long), Member("f")]
    archives = list(map(oci.layer, (low, [link("l", long)], [Member("g"), opaque("a/a")])))
    found = tree(quick(archives))
    assert found == tree(thorough(tmp_path, archives))
    assert found.keys() >= {"a/a", long, "l"}
    assert deep not in found
