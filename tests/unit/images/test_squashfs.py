"""An image file is checked before it is used."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.images.squashfs import check, parse
from tests.unit import squashfs

SIZE = 4096


def superblock(compressor: int = 6, major: int = 4, used: int = SIZE) -> bytes:
    head = struct.pack(
        "<4sIIIIHHHHHHQQ", b"hsqs", 1, 0, 131072, 0, compressor, 17, 0, 1, major, 0, 0, used
    )
    return head.ljust(512, b"\0")


def refusal(head: bytes, size: int = SIZE) -> UserError:
    with pytest.raises(UserError) as caught:
        parse("/i", head, size)
    return caught.value


def test_a_real_image_is_accepted(tmp_path: Path, need_tool: Callable[[str], str]) -> None:
    need_tool("mksquashfs")
    image = squashfs.make(tmp_path / "i.sqsh", {"a": "b"})
    found = check(str(image))
    assert (found.compressor, found.block_size) == ("gzip", 131072)
    assert found.bytes_used <= image.stat().st_size


def test_a_real_image_that_was_cut_is_refused(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    need_tool("mksquashfs")
    image = squashfs.make(tmp_path / "i.sqsh", {"a": "b" * 9999})
    used = check(str(image)).bytes_used
    os.truncate(image, used - 1)
    with pytest.raises(UserError) as caught:
        check(str(image))
    assert str(caught.value) == f"'{image}': cut short, it has {used - 1} bytes of {used}"


def test_a_file_that_is_there_but_cannot_be_opened_is_not_taken_for_a_typo(tmp_path: Path) -> None:
    (tmp_path / "train.sqsh").symlink_to("train.sqsh")
    (tmp_path / "trian.sqsh").touch()
    with pytest.raises(UserError) as caught:
        check(f"{tmp_path}/train.sqsh")
    assert (caught.value.see, caught.value.hint) == ("image-file-unreadable", None)
    with pytest.raises(UserError) as caught:
        check(f"{tmp_path}/trains.sqsh")
    assert (caught.value.see, caught.value.hint) == (
        "image-file-not-found",
        f"did you mean '{tmp_path}/train.sqsh'?",
    )


@pytest.mark.parametrize(
    ("number", "name"),
    [(1, "gzip"), (3, "lzo"), (4, "xz"), (5, "lz4"), (6, "zstd"), (9, "unknown (9)")],
)
def test_the_compressor_is_named(number: int, name: str) -> None:
    assert parse("/i", superblock(number), SIZE).compressor == name


def test_another_version_is_refused() -> None:
    assert str(refusal(superblock(major=3))) == (
        "'/i': SquashFS version 3, only version 4 can be mounted"
    )


def test_an_image_shorter_than_its_superblock_is_cut_short() -> None:
    assert str(refusal(superblock()[:50], 50)) == "'/i': cut short, it has 50 bytes of at least 96"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\0" * 257 + b"ustar", "a tar archive"),
        (b"\x1f\x8b\x08", "a gzip file"),
        (b"\x28\xb5\x2f\xfd", "a zstd file"),
        (b"\x7fELF", "a program (ELF)"),
        (b"QFI\xfb", "a disk image of a virtual machine (qcow)"),
        (b"version https://git-lfs.github.com/spec/v1", "a git-lfs pointer, not the file itself"),
        (b"<!DOCTYPE html>", "a web page or another text in XML"),
        (b"PK\x03\x04", "a zip archive"),
        (b"#!/bin/sh\n", "a script"),
        (b"sqsh", "a big-endian SquashFS, made on another kind of machine"),
        (b"\0" * 512, "a file of zeros"),
        (b"hello", "something unknown"),
    ],
)
def test_another_kind_of_file_is_named(head: bytes, kind: str) -> None:
    assert str(refusal(head)) == f"'/i': not a SquashFS file but {kind}"


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "i").touch()
    with pytest.raises(UserError, match="the file is empty"):
        check(str(tmp_path / "i"))


def test_a_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "i")
    with pytest.raises(UserError, match="not a regular file"):
        check(str(tmp_path / "i"))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none/i", "'{}/none/i': no such file or directory"),
        ("", "'{}/': a directory, not a SquashFS file"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, path: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        check(f"{tmp_path}/{path}")
    assert str(caught.value) == message.format(tmp_path)
