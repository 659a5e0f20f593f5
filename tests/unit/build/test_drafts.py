"""Directories for files being made: the next one's creation removes those of killed processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from container_engine.build import container_archive
from container_engine.images.store import lease


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
