"""The digest of an image's content: recorded once, valid only while the file is unchanged."""

import hashlib
import os
import shutil
import time
from pathlib import Path

import pytest

from container_engine.images import identity
from container_engine.images.store import publish


def test_a_digest_is_known_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "x.sqsh"
    path.write_bytes(b"content")
    assert identity.known_digest(str(path)) == ""
    digest = identity.computed(str(path))
    assert digest == f"sha256:{hashlib.sha256(b'content').hexdigest()}"
    identity.note(str(path), digest)
    assert identity.known_digest(str(path)) == digest
    path.write_bytes(b"another")
    os.utime(path, (1, 1))
    assert identity.known_digest(str(path)) == ""
    path.unlink()
    assert identity.known_digest(str(path)) == ""


@pytest.mark.parametrize("how", ["in place", "by a rename"])
def test_other_content_of_the_same_size_and_time_has_no_known_digest(
    tmp_path: Path, how: str
) -> None:
    path, other = tmp_path / "x.sqsh", tmp_path / "other"
    path.write_bytes(b"content")
    identity.note(str(path), identity.computed(str(path)))
    before = path.stat()
    written = path if how == "in place" else other
    written.write_bytes(b"another")
    os.utime(written, ns=(before.st_atime_ns, before.st_mtime_ns))
    written.rename(path)
    assert identity.known_digest(str(path)) == ""
    assert identity.has_changed(str(path))


def test_a_renamed_copied_or_linked_image_keeps_its_digest(tmp_path: Path) -> None:
    path, moved = tmp_path / "x.sqsh", tmp_path / "moved.sqsh"
    path.write_bytes(b"content")
    identity.note(str(path), identity.computed(str(path)))
    digest = identity.known_digest(str(path))
    for name in ("", identity.SUFFIX):
        shutil.copy2(f"{path}{name}", f"{moved}{name}")
    (tmp_path / "link").hardlink_to(path)
    path.chmod(0o600)
    assert identity.known_digest(str(path)) == identity.known_digest(str(moved)) == digest


def test_an_import_records_it_and_a_use_keeps_it(tmp_path: Path) -> None:
    directory = tmp_path / "images"
    directory.mkdir()
    made, path = directory / "made", directory / f"sha256-{'ab' * 32}-amd64.sqsh"
    made.write_bytes(b"content")
    digest = identity.computed(str(made))
    assert publish.install_stored(str(made), b"{}", str(path), b"")
    assert identity.known_digest(str(path)) == digest
    publish.note_use(str(path), publish.Use(1, 1))
    publish.mark_used(str(path), time.time() + 5)
    assert identity.known_digest(str(path)) == digest
    sums = identity.sums(str(path))
    assert sums is not None
    assert sums.config == hashlib.sha256(b"{}").hexdigest()


def test_a_file_of_ones_own_is_recorded_as_well(tmp_path: Path) -> None:
    made, path = tmp_path / "made", tmp_path / "x.sqsh"
    made.write_bytes(b"content")
    publish.install(str(made), b"{}", str(path))
    assert identity.known_digest(str(path)) == identity.computed(str(path))


def test_an_image_that_is_there_is_never_replaced_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "images" / f"sha256-{'ab' * 32}-amd64.sqsh"
    path.parent.mkdir()

    def install(content: bytes) -> bool:
        made = tmp_path / "made"
        made.write_bytes(content)
        return publish.install_stored(str(made), b"{}", str(path), b"m")

    assert install(b"first")
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    inode = path.stat().st_ino
    assert not install(b"second")
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before
    assert path.stat().st_ino == inode
