"""The digest of an image's content: recorded once, valid only while the file is unchanged."""

import hashlib
import os
import shutil
import time
from pathlib import Path

import pytest

from container_engine.images import image_files


def test_a_digest_is_known_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "x.sqsh"
    path.write_bytes(b"content")
    assert image_files.known_digest(str(path)) == ""
    digest = image_files.computed_digest(str(path))
    assert digest == f"sha256:{hashlib.sha256(b'content').hexdigest()}"
    image_files.note_digest(str(path), digest)
    assert image_files.known_digest(str(path)) == digest
    path.write_bytes(b"another")
    os.utime(path, (1, 1))
    assert image_files.known_digest(str(path)) == ""
    path.unlink()
    assert image_files.known_digest(str(path)) == ""


@pytest.mark.parametrize("how", ["in place", "by a rename"])
def test_other_content_of_the_same_size_and_time_has_no_known_digest(
    tmp_path: Path, how: str
) -> None:
    path, other = tmp_path / "x.sqsh", tmp_path / "other"
    path.write_bytes(b"content")
    image_files.note_digest(str(path), image_files.computed_digest(str(path)))
    before = path.stat()
    written = path if how == "in place" else other
    written.write_bytes(b"another")
    os.utime(written, ns=(before.st_atime_ns, before.st_mtime_ns))
    written.rename(path)
    assert image_files.known_digest(str(path)) == ""
    assert image_files.has_changed(str(path))


def test_a_renamed_copied_or_linked_image_keeps_its_digest(tmp_path: Path) -> None:
    path, moved = tmp_path / "x.sqsh", tmp_path / "moved.sqsh"
    path.write_bytes(b"content")
    image_files.note_digest(str(path), image_files.computed_digest(str(path)))
    digest = image_files.known_digest(str(path))
    for name in ("", image_files.SUMS_SUFFIX):
        shutil.copy2(f"{path}{name}", f"{moved}{name}")
    (tmp_path / "link").hardlink_to(path)
    path.chmod(0o600)
    assert image_files.known_digest(str(path)) == image_files.known_digest(str(moved)) == digest


def test_an_import_records_it_and_a_use_keeps_it(tmp_path: Path) -> None:
    directory = tmp_path / "images"
    directory.mkdir()
    made, path = directory / "made", directory / f"sha256-{'ab' * 32}-amd64.sqsh"
    made.write_bytes(b"content")
    digest = image_files.computed_digest(str(made))
    assert image_files.install_stored(str(made), b"{}", str(path), b"")
    assert image_files.known_digest(str(path)) == digest
    image_files.note_use(str(path), image_files.Use(1, 1))
    image_files.mark_used(str(path), time.time() + 5)
    assert image_files.known_digest(str(path)) == digest
    sums = image_files.sums(str(path))
    assert sums is not None
    assert sums.config == hashlib.sha256(b"{}").hexdigest()


def test_a_file_of_ones_own_is_recorded_as_well(tmp_path: Path) -> None:
    made, path = tmp_path / "made", tmp_path / "x.sqsh"
    made.write_bytes(b"content")
    image_files.install(str(made), b"{}", str(path), replaces=False)
    assert image_files.known_digest(str(path)) == image_files.computed_digest(str(path))


def test_an_image_that_is_there_is_never_replaced_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "images" / f"sha256-{'ab' * 32}-amd64.sqsh"
    path.parent.mkdir()

    def install(content: bytes) -> bool:
        made = tmp_path / "made"
        made.write_bytes(content)
        return image_files.install_stored(str(made), b"{}", str(path), b"m")

    assert install(b"first")
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    inode = path.stat().st_ino
    assert not install(b"second")
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before
    assert path.stat().st_ino == inode
