"""A container's files as an archive: what was written, without what the engine wrote."""

import io
import json
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.build import container_archive
from container_engine.build.container_archive import Roots, Selection
from container_engine.images.store import lease

Saved = dict[str, tarfile.TarInfo]


class Container:
    """The three trees of a container; what `merged` shows is written by the test, too."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("lower", "upper", "merged"):
            (root / name).mkdir()

    def image(self, path: str, text: str) -> None:
        for name in ("lower", "merged"):
            self._file(self.root / name / path, text)

    def written(self, path: str, text: str) -> Path:
        self._file(self.root / "merged" / path, text)
        return self._file(self.root / "upper" / path, text)

    def removed(self, path: str) -> None:
        (self.root / "merged" / path).unlink(missing_ok=True)
        mark = self.root / "upper" / path
        mark.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(mark, stat.S_IFCHR, os.makedev(0, 0))

    def save(self, selection: Selection, *, difference: bool) -> tuple[Saved, dict[str, bytes]]:
        flags = os.O_RDONLY | os.O_DIRECTORY
        fds = [os.open(self.root / name, flags) for name in ("lower", "upper", "merged")]
        out = io.BytesIO()
        container_archive.write(Roots(*fds), selection, out, difference=difference)
        for fd in fds:
            os.close(fd)
        out.seek(0)
        with tarfile.open(fileobj=out) as archive:
            members = {member.name: member for member in archive}
            texts = {
                name: file.read()
                for name, member in members.items()
                if (file := archive.extractfile(member)) is not None
            }
        return members, texts

    def _file(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


NOTHING_BEFORE = Selection(())


def test_a_difference_has_what_was_written_and_marks_what_was_removed(container: Container) -> None:
    container.image("etc/kept", "k")
    container.image("etc/gone", "g")
    container.written("etc/new", "n")
    container.removed("etc/gone")
    members, texts = container.save(NOTHING_BEFORE, difference=True)
    assert set(members) == {"etc", "etc/new", "etc/gone"}
    assert members["etc/gone"].ischr()
    assert (members["etc/gone"].devmajor, members["etc/gone"].devminor) == (0, 0)
    assert texts["etc/new"] == b"n"
    assert {(member.uid, member.gid) for member in members.values()} == {(0, 0)}


def test_a_whole_image_has_no_marks(container: Container) -> None:
    container.image("etc/kept", "k")
    container.image("etc/gone", "g")
    container.written("etc/new", "n")
    container.removed("etc/gone")
    members, _texts = container.save(NOTHING_BEFORE, difference=False)
    assert set(members) == {"etc", "etc/new", "etc/kept"}


def test_an_opaque_directory_stays_opaque_only_in_a_difference(container: Container) -> None:
    for name in ("upper", "merged"):
        (container.root / name / "data").mkdir()
    os.setxattr(container.root / "upper" / "data", "user.overlay.opaque", b"y")
    os.setxattr(container.root / "upper" / "data", "user.overlay.origin", b"\0abc")
    os.setxattr(container.root / "upper" / "data", "user.mine", b"1")
    members, _texts = container.save(NOTHING_BEFORE, difference=True)
    marks = {key for key in members["data"].pax_headers if key.startswith("SCHILY")}
    assert marks == {"SCHILY.xattr.user.overlay.opaque", "SCHILY.xattr.user.mine"}


def now(container: Container) -> int:
    """Return a time after all that was written, and before all that is written from here on."""
    marker = container.root / "marker"
    marker.write_text("")
    begun = marker.stat().st_ctime_ns
    while True:
        marker.write_text("x")
        if marker.stat().st_ctime_ns > begun:
            return begun


@pytest.mark.parametrize("difference", [True, False])
def test_what_the_engine_wrote_before_the_tasks_is_left_out(
    container: Container, difference: bool
) -> None:
    container.image("etc/ld.so.cache", "the image's")
    container.image("usr/lib/hidden", "the image's")
    container.written("etc/ld.so.cache", "the engine's")
    container.written("hook/lib/injected", "")
    container.removed("usr/lib/hidden")
    begun = now(container)
    container.written("usr/lib/mine", "m")
    _members, texts = container.save(Selection([(0, begun)]), difference=difference)
    whole = {"etc/ld.so.cache": b"the image's", "usr/lib/hidden": b"the image's"}
    assert texts == {"usr/lib/mine": b"m", **({} if difference else whole)}


@pytest.mark.parametrize("difference", [True, False])
def test_places_of_mounts_that_no_image_has_are_left_out(
    container: Container, difference: bool
) -> None:
    for name in ("upper", "merged"):
        (container.root / name / "scratch/project").mkdir(parents=True)
        (container.root / name / "empty").mkdir()
    container.written("etc/hostname", "")
    container.written("etc/mine", "m")
    places = {b"scratch", b"scratch/project", b"etc", b"etc/hostname"}
    members, _texts = container.save(Selection((), places), difference=difference)
    assert set(members) == {"etc", "etc/mine", "empty"}


@pytest.mark.parametrize("difference", [True, False])
def test_the_users_own_line_is_left_out_of_the_files_of_users(
    container: Container, difference: bool
) -> None:
    container.image("etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    container.written("etc/passwd", "root:x:0:0::/root:/bin/sh\nme:x:1:1::/me:/bin/sh\nnew:x:9\n")
    selection = Selection((), (), {b"etc/passwd": b"me:x:1:1::/me:/bin/sh"})
    _members, texts = container.save(selection, difference=difference)
    assert texts["etc/passwd"] == b"root:x:0:0::/root:/bin/sh\nnew:x:9\n"


def test_files_of_users_with_only_the_own_line_are_not_a_difference(container: Container) -> None:
    container.image("etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    container.written("etc/passwd", "root:x:0:0::/root:/bin/sh\nme:x:1:1::/me:/bin/sh\n")
    selection = Selection((), (), {b"etc/passwd": b"me:x:1:1::/me:/bin/sh"})
    members, _texts = container.save(selection, difference=True)
    assert set(members) == {"etc"}


class Shortened(io.BytesIO):
    """An archive during whose writing a file becomes shorter."""

    def __init__(self, shorten: Callable[[], None]) -> None:
        super().__init__()
        self._shorten = shorten

    def write(self, piece: object) -> int:
        self._shorten()
        return super().write(piece)  # type: ignore[arg-type]


def test_a_file_that_becomes_shorter_meanwhile_is_filled_up(container: Container) -> None:
    path = container.written("log", "x" * 1000)
    (container.root / "merged" / "log").unlink()
    flags = os.O_RDONLY | os.O_DIRECTORY
    fds = [os.open(container.root / name, flags) for name in ("lower", "upper", "merged")]
    out = Shortened(lambda: os.truncate(path, 10))
    container_archive.write(Roots(*fds), NOTHING_BEFORE, out, difference=True)
    out.seek(0)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        file = archive.extractfile("log")
        assert file is not None
        assert file.read() == b"x" * 10 + bytes(990)


def test_links_sockets_and_modes_are_as_in_an_import(container: Container) -> None:
    path = container.written("one", "1")
    os.link(path, container.root / "upper" / "two")
    (container.root / "upper" / "link").symlink_to("one")
    os.mknod(container.root / "upper" / "socket", stat.S_IFSOCK | 0o600)
    path.chmod(0o4755)
    members, _texts = container.save(NOTHING_BEFORE, difference=True)
    assert set(members) == {"link", "one", "two"}
    assert members["two"].linkname == "one"
    assert members["link"].linkname == "one"
    assert members["one"].mode == 0o4755


def left(place: Path, name: str = "", **owner: object) -> Path:
    """Leave a directory behind as the process with these properties would; return it."""
    path = place / f".ce-save-{name or 'left'}"
    path.mkdir(mode=0o700)
    (path / "image").write_text("half an image")
    known = lease.this_process("")._asdict() | owner
    (path / "owner").write_text(json.dumps(known))
    return path


def remains(place: Path) -> set[str]:
    """Make another directory; return the names of the others, during that and after it."""
    with container_archive.draft_directory(str(place), 60) as work:
        assert os.stat(work).st_mode & 0o777 == 0o700
        during = set(os.listdir(place)) - {os.path.basename(work)}
    assert set(os.listdir(place)) == during
    return during


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    text = """import os, sys
from container_engine.build import container_archive
with container_archive.draft_directory(sys.argv[1], 60):
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", text, tmp_path], check=False)
    assert [path.name.startswith(".ce-save-") for path in tmp_path.iterdir()] == [True]
    assert remains(tmp_path) == set()


def test_what_lives_or_may_live_stays(tmp_path: Path) -> None:
    os.utime(left(tmp_path), (1, 1))
    left(tmp_path, "elsewhere", machine="another")
    assert remains(tmp_path) == {".ce-save-left", ".ce-save-elsewhere"}


def test_on_another_host_the_time_says_who_lives(tmp_path: Path) -> None:
    for name, age in (("young", 100), ("old", 121)):
        path = left(tmp_path, name, machine="another")
        when = path.stat().st_mtime - age
        os.utime(path, (when, when))
    assert remains(tmp_path) == {".ce-save-young"}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user")
def test_nothing_of_another_users_is_touched(tmp_path: Path) -> None:
    theirs, open_to_all = left(tmp_path, "theirs", pid=2**22 + 1), left(tmp_path, "open", pid=2**22)
    os.chown(theirs, 61_001, 61_001)
    open_to_all.chmod(0o750)
    (tmp_path / ".ce-save-link").symlink_to(tmp_path)
    left(tmp_path, "mine", pid=2**22).rename(tmp_path / "mine")
    kept = {".ce-save-theirs", ".ce-save-open", ".ce-save-link", "mine"}
    assert remains(tmp_path) == kept
