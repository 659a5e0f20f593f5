"""Layer files as streams of their content."""

import bz2
import gzip
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.images.pack import layers
from tests.unit.images import oci


def read(path: Path) -> list[bytes]:
    found = []
    with layers.plain(layers.LayerFile(str(path)), os.environ, lambda _size: None) as stream:
        while piece := stream.some(1 << 30):
            found.append(bytes(piece))
    return found


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
}
any_packer = pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)


@any_packer
def test_what_grows_a_thousandfold_comes_in_small_pieces(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    content = bytes(40 << 20) + os.urandom(99)
    (tmp_path / "l").write_bytes(pack(content))
    found = read(tmp_path / "l")
    assert max(map(len, found)) <= 1 << 20
    assert b"".join(found) == content


@any_packer
@pytest.mark.parametrize("padding", [0, 512, 300_000])
def test_a_file_may_have_several_members_and_padding(
    tmp_path: Path, padding: int, pack: Callable[[bytes], bytes]
) -> None:
    parts = [bytes(1 << 20), os.urandom(200_000), b"end"]
    text = b"".join(map(pack, parts))
    (tmp_path / "l").write_bytes(text + bytes(padding))
    assert b"".join(read(tmp_path / "l")) == b"".join(parts)


@any_packer
def test_a_changed_byte_is_damage(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    packed = bytearray(pack(os.urandom(300_000)))
    packed[200_000] ^= 4
    (tmp_path / "l").write_bytes(packed)
    with pytest.raises(UserError, match="l: damaged: ") as caught:
        read(tmp_path / "l")
    assert caught.value.see == "image-damaged"


@pytest.mark.parametrize(("kind", "module"), [("xz", "lzma"), ("bzip2", "bz2")])
def test_a_layer_in_a_form_that_this_python_lacks_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, module: str
) -> None:
    (tmp_path / "l").write_bytes(PACKERS[kind](bytes(10240)))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=f"compressed with {kind}, which"):
        read(tmp_path / "l")


def test_zstd_data_may_begin_with_a_frame_to_skip(tmp_path: Path) -> None:
    # as pzstd writes it
    path = tmp_path / "layer"
    path.write_bytes(b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + oci.zstd(b"content"))
    with layers.plain(layers.LayerFile(str(path)), os.environ, lambda _size: None) as stream:
        assert stream.take(100) == b"content"
