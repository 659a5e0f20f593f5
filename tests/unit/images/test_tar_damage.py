"""No layer loses anything silently: what is not read as an entry is an error, either way."""

import hashlib
import io
import os
import random
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.images.pack import merge_seek, merge_stream
from container_engine.images.pack.layers import LayerFile, entries
from container_engine.images.policy import UNLIMITED
from tests.unit.images import oci
from tests.unit.images.oci import Member

END = bytes(1024)


def member(name: str, data: bytes = b"", **fields: object) -> bytes:
    """Return an entry without the archive's end; `fields` are those of tarfile.TarInfo."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.PAX_FORMAT) + data + bytes(-len(data) % 512)


def header(kind: bytes, data: bytes = b"") -> bytes:
    return member("h", data, type=kind)


def pax(*records: tuple[str, str], kind: bytes = b"x") -> bytes:
    text = b"".join(record(f"{key}={value}\n".encode()) for key, value in records)
    return header(kind, text)


def record(text: bytes) -> bytes:
    size = next(n for n in range(len(text), 9999) if len(b"%d " % n) + len(text) == n)
    return b"%d %b" % (size, text)


def quick(layer: LayerFile) -> dict[str, bytes]:
    out = io.BytesIO()
    merger = merge_stream.Merger(out)
    with entries(layer, os.environ, UNLIMITED.account()) as reader:
        merger.add_layer(reader, 0)
    merger.finish()
    return files(out)


def thorough(layer: LayerFile) -> dict[str, bytes]:
    out = io.BytesIO()
    merge_seek.write_merged([layer], out, os.environ, UNLIMITED.account())
    return files(out)


def files(out: io.BytesIO) -> dict[str, bytes]:
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive if m.isreg()}  # type: ignore[union-attr]


Way = Callable[[LayerFile], dict[str, bytes]]
either_way = pytest.mark.parametrize("way", [quick, thorough])


def layer(where: Path, data: bytes, content: str = "") -> LayerFile:
    (where / "layer").write_bytes(data)
    return LayerFile(str(where / "layer"), content)


A, B = member("a", b"1" * 700), member("b", b"2" * 700)
BAD_SUM = B[:10] + b"x" + B[11:]
LONG = "n" * 120
OLD = tarfile.TarInfo("old").tobuf(tarfile.USTAR_FORMAT)[:257] + bytes(255)
OLD = OLD[:148] + b"%06o\0 " % (sum(OLD[:148] + OLD[156:]) + 8 * 0x20) + OLD[156:]
DAMAGE: dict[str, tuple[bytes, str]] = {
    "a lone block of zeros": (A + bytes(512) + B + END, "a single block of zeros, and data after"),
    "a second archive": (A + END + B + END, "a second archive follows its end"),
    "a second archive of version 7": (A + END + OLD + END, "a second archive follows its end"),
    "a later archive": (A + bytes(10240) + B + END, "a second archive follows its end"),
    "cut in a header": (A + B[:100], "it is cut short"),
    "cut in a content": (A + B[:700], "it is cut short"),
    "cut in a content's last block": (A + B[:-100], "it is cut short"),
    "a header behind the first with a wrong sum": (A + BAD_SUM + END, "checksum is wrong"),
    "an unknown type": (A + header(b"V") + END, "an entry of the unknown type 'V'"),
    "a dump of a directory": (A + header(b"D", b"Yx\0") + END, "an entry of the unknown type 'D'"),
    "a part of a volume": (A + header(b"M", b"x") + END, "an entry of the unknown type 'M'"),
    "a long name and no entry": (A + header(b"L", b"n\0") + END, "where the entry of an extended"),
    "pax records and no entry": (A + pax(("path", "x")) + END, "where the entry of an extended"),
    "pax records and a bare end": (A + pax(("path", "x")), "where the entry of an extended"),
    "a pax record cut short": (header(b"x", b"30 path=x\n") + B + END, "headers cannot be read"),
    "a pax record without '='": (header(b"x", b"8 path\n") + B + END, "headers cannot be read"),
    "a pax record without its end": (header(b"x", b"9 path=xy") + B + END, "cannot be read"),
    "a size of 4000 digits": (pax(("size", "9" * 4000)) + B + END, "impossible size"),
    "a size of 5000 digits": (pax(("size", "9" * 5000)) + B + END, "an invalid number"),
    "a size below zero": (pax(("size", "-1")) + B + END, "an invalid number"),
    "a size with an underscore": (pax(("size", "1_0")) + B + END, "an invalid number"),
    "too many pax records": (header(b"x", bytes(1 << 21)) + B + END, "header is too long"),
    "a global name": (pax(("path", "x"), kind=b"g") + A + B + END, "describes a single file"),
    "a sparse map without end": (
        pax(("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "9"))
        + member("s", b"7\n" + bytes(510))
        + END,
        "it is cut short",
    ),
    "a sparse map that is too short": (
        pax(("GNU.sparse.map", "0,100"), ("GNU.sparse.size", "900")) + B + END,
        "does not fit what is stored",
    ),
    "a sparse map out of order": (
        pax(("GNU.sparse.map", "500,300,0,400"), ("GNU.sparse.size", "900")) + B + END,
        "does not fit its size",
    ),
    "a sparse map in words": (
        pax(("GNU.sparse.map", "x,y"), ("GNU.sparse.size", "900")) + B + END,
        "map cannot be read",
    ),
    "a sparse form of tomorrow": (
        pax(("GNU.sparse.major", "2"), ("GNU.sparse.minor", "0")) + B + END,
        "unknown form",
    ),
}


@either_way
@pytest.mark.parametrize("name", DAMAGE)
def test_what_would_be_lost_is_damage(tmp_path: Path, name: str, way: Way) -> None:
    data, said = DAMAGE[name]
    with pytest.raises(UserError, match=f"layer: damaged: .*{said}") as caught:
        way(layer(tmp_path, data))
    assert caught.value.see == "image-damaged"


WHOLE: dict[str, bytes] = {
    "no end": A + B,
    "one block as the end": A + B + bytes(512),
    "garbage behind the end": A + B + END + os.urandom(512 * 20 + 7),
    "records for the whole archive": pax(("comment", "x"), ("mtime", "1"), kind=b"g") + A + B + END,
    "global records last": A + B + pax(("comment", "x"), kind=b"g") + END,
    "records of Solaris": A + pax(("mtime", "5"), kind=b"X") + B + END,
    "records without a value": pax(("path", ""), ("size", ""), ("mtime", "")) + A + B + END,
    "a contiguous file": member("a", b"1" * 700, type=b"7") + B + END,
}


@either_way
@pytest.mark.parametrize("name", WHOLE)
def test_what_is_whole_is_read(tmp_path: Path, name: str, way: Way) -> None:
    assert way(layer(tmp_path, WHOLE[name])) == {"a": b"1" * 700, "b": b"2" * 700}


@either_way
def test_a_sum_of_signed_bytes_is_as_good(tmp_path: Path, way: Way) -> None:
    info = tarfile.TarInfo("é" * 20)
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[148:156] = b" " * 8
    total = sum(byte - 256 if byte > 127 else byte for byte in head)
    head[148:156] = b"%06o\0 " % total
    assert way(layer(tmp_path, bytes(head) + END)).keys() == {"é" * 20}


@either_way
@pytest.mark.parametrize("mode", [b"0000755\0", b" 755\0old", b"\0\x30755 \0x", b"755  \0\0\0"])
def test_a_number_ends_where_it_says(tmp_path: Path, mode: bytes, way: Way) -> None:
    head = bytearray(tarfile.TarInfo("a").tobuf(tarfile.GNU_FORMAT))
    head[100:108], head[148:156] = mode, b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    assert way(layer(tmp_path, bytes(head) + END)).keys() == {"a"}
    head[100:108], head[148:156] = b"75x\0old\0", b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    with pytest.raises(UserError, match="an invalid number"):
        way(layer(tmp_path, bytes(head) + END))


@either_way
@pytest.mark.parametrize("holes", ["first", "last", "between", "many", "all", "none"])
@pytest.mark.parametrize("form", ["gnu", "0.0", "0.1", "1.0"])
def test_sparse_files_have_their_zeros(tmp_path: Path, form: str, holes: str, way: Way) -> None:
    content = {
        "first": bytes(1 << 21) + b"end",
        "last": b"begin" * 999 + bytes(1 << 20),
        "between": b"begin" * 999 + bytes(1 << 20) + b"end",
        "many": b"".join(b"%d" % n + bytes(1 << 16) for n in range(60)),
        "all": bytes(1 << 20),
        "none": b"x" * 5000,
    }[holes]
    with open(tmp_path / "s", "wb") as file:
        for at in range(0, len(content), 4096):
            if piece := content[at : at + 4096].strip(b"\0") and content[at : at + 4096]:
                file.seek(at)
                file.write(piece)
        file.truncate(len(content))
    kind = ["--format=gnu"] if form == "gnu" else ["--format=pax", f"--sparse-version={form}"]
    argv = ["tar", "-C", str(tmp_path), "--sparse", *kind, "-cf", "-"]
    (tmp_path / "t").write_bytes(b"after")
    made = subprocess.run([*argv, "s", "t"], capture_output=True, check=True).stdout
    assert way(layer(tmp_path, made)) == {"s": content, "t": b"after"}


@either_way
def test_a_file_of_nothing_but_zeros_counts_in_full(tmp_path: Path, way: Way) -> None:
    terabyte = str(1 << 40)
    data = pax(("GNU.sparse.map", "0,0"), ("GNU.sparse.size", terabyte)) + member("z") + END
    with pytest.raises(UserError, match="unpack to more than 20 times") as caught:
        way(layer(tmp_path, data))
    assert caught.value.see == "image-policy"


@either_way
@pytest.mark.parametrize("compressor", oci.MORE_COMPRESSORS)
def test_the_content_must_be_what_the_configuration_says(
    tmp_path: Path, compressor: str, way: Way, need_tool: Callable[[str], str]
) -> None:
    need_tool("zstd")
    plain = oci.layer([Member("a", b"1"), Member("b", os.urandom(1 << 18))])
    packed = oci.MORE_COMPRESSORS[compressor][1](plain)
    for algorithm in ("sha256", "sha512"):
        digest = hashlib.new(algorithm, plain).hexdigest()
        assert way(layer(tmp_path, packed, f"{algorithm}:{digest}")).keys() == {"a", "b"}
    other = f"sha256:{'0' * 64}"
    with pytest.raises(UserError, match=f"has the digest .*, and .* says {other}") as caught:
        way(layer(tmp_path, packed, other))
    assert caught.value.see == "image-damaged"
    with pytest.raises(UserError, match="of an unknown kind"):
        way(layer(tmp_path, packed, "md5:00"))


@either_way
def test_any_changed_byte_is_an_error_or_changes_no_more_than_itself(
    tmp_path: Path, way: Way
) -> None:
    """Without digests. A changed byte of a content, of a time or of an owner cannot be seen."""
    names = [f"d/{n}" for n in range(8)]
    plain = b"".join(member(name, b"c" * 300) for name in names) + END
    seed = int.from_bytes(os.urandom(4), "big")
    chance = random.Random(seed)
    for _ in range(400):
        at, bit = chance.randrange(len(plain)), 1 << chance.randrange(8)
        changed = bytearray(plain)
        changed[at] ^= bit
        try:
            found = way(layer(tmp_path, bytes(changed)))
        except UserError:
            continue
        assert found.keys() == set(names), f"seed {seed}: byte {at}, bit {bit}"
