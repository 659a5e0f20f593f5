"""Layer files as streams of their content."""

import gzip
import os
from pathlib import Path

import pytest

from container_engine.images.pack import layers


def read(path: Path) -> list[bytes]:
    found = []
    with layers.plain(layers.LayerFile(str(path)), os.environ, lambda _size: None) as stream:
        while piece := stream.some(1 << 30):
            found.append(bytes(piece))
    return found


def test_what_grows_a_thousandfold_comes_in_small_pieces(tmp_path: Path) -> None:
    content = bytes(40 << 20) + os.urandom(99)
    (tmp_path / "l").write_bytes(gzip.compress(content))
    found = read(tmp_path / "l")
    assert max(map(len, found)) <= 1 << 20
    assert b"".join(found) == content


@pytest.mark.parametrize("padding", [0, 512, 300_000])
def test_a_gzip_file_may_have_several_members_and_padding(tmp_path: Path, padding: int) -> None:
    parts = [bytes(1 << 20), os.urandom(200_000), b"end"]
    text = b"".join(map(gzip.compress, parts))
    (tmp_path / "l").write_bytes(text + bytes(padding))
    assert b"".join(read(tmp_path / "l")) == b"".join(parts)
