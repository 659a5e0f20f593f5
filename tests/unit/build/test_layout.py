"""Images of this host with which a build begins."""

import os
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.build.layout import Base, write_layout
from tests.unit import squashfs

MINE = Base("./x.sqsh", "/home/me/x.sqsh", "sha256:ab", b"{}", 1000)


def test_a_base_is_the_same_under_another_name() -> None:
    assert MINE._replace(name="x:1", path="/home/me/y.sqsh").tag == MINE.tag


def test_a_file_does_not_take_the_place_of_another_users_with_the_digest_that_it_claims() -> None:
    tags = {MINE.tag, MINE._replace(owner=1001).tag, MINE._replace(digest="sha256:cd").tag}
    assert len({*tags, MINE._replace(configuration=b'{"os":"linux"}').tag}) == 4


def test_a_damaged_base_is_named_and_not_the_step_of_a_build(tmp_path: Path) -> None:
    image = squashfs.make(tmp_path / "x.sqsh", {"etc/x": "y" * 100_000})
    content = bytearray(image.read_bytes())
    inodes = int.from_bytes(content[64:72], "little")
    content[inodes + 2 : inodes + 40] = b"?" * 38
    image.write_bytes(content)
    with pytest.raises(UserError) as raised:
        write_layout(MINE._replace(path=str(image)), str(tmp_path / "layout"), os.environ, 30)
    assert raised.value.see == "image-damaged"
    message = str(raised.value)
    assert message.startswith(f"FROM: '{image}': its files cannot be read: "), message
    assert message.count(str(image)) == 1
