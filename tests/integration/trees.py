"""The trees of images, as Podman unpacks them and as the engine mounts its own files."""

import hashlib
import json
import math
import os
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_BEGAN = time.time()
_AUFS = ".wh..wh.plnk"
_LAST_TIME = (1 << 32) - 1


class Entry(NamedTuple):
    """An entry of an image's tree; `same` are the paths of the same file, `mtime` is in seconds."""

    mode: int
    owner: tuple[int, int]
    mtime: int
    content: str
    xattrs: dict[str, bytes]
    same: tuple[str, ...]


def entries(root: Path) -> dict[str, Entry]:
    """Return everything below `root` except devices.

    Paths may be longer than the kernel accepts in one call.
    """
    found: dict[str, Entry] = {}
    paths: dict[int, list[str]] = {}
    for where, directories, files, fd in os.fwalk(root):
        for name in [*directories, *files]:
            path = os.path.join(where, name).removeprefix(f"{root}/")
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
                continue
            is_directory = stat.S_ISDIR(status.st_mode)
            content, xattrs = _inside(name, fd, status.st_mode)
            same = paths.setdefault(status.st_ino, []) if not is_directory else [path]
            if not is_directory:
                same.append(path)
            owner = (status.st_uid, status.st_gid)
            mtime = math.floor(status.st_mtime)
            found[path] = Entry(status.st_mode, owner, mtime, content, xattrs, same)  # type: ignore[arg-type]
    return {path: entry._replace(same=tuple(sorted(entry.same))) for path, entry in found.items()}


def differences(ours: dict[str, Entry], theirs: dict[str, Entry]) -> list[str]:
    """Return a line for each entry that Podman has made otherwise than the engine.

    These differences are documented: all belongs to root; times are those that SquashFS can keep.
    A directory that Podman had to change for a later layer has the time of that change. Its driver
    vfs copies layers, but hard links of other than regular files as several. It leaves a directory
    of AUFS in place whose entries it leaves out.
    """
    found = []
    for path in sorted(ours.keys() | theirs.keys()):
        if path == _AUFS:
            continue
        here, there = ours.get(path), theirs.get(path)
        if here is not None and there is not None:
            mtime = min(max(there.mtime, 0), _LAST_TIME)
            if stat.S_ISDIR(there.mode) and there.mtime >= _BEGAN:
                mtime = here.mtime
            there = there._replace(owner=(0, 0), mtime=mtime)
            if not stat.S_ISREG(there.mode):
                there = there._replace(same=here.same)
        if here != there:
            found.append(f"{path!r}: {here} is {there} with Podman")
    return found


def _inside(name: str, fd: int, mode: int) -> tuple[str, dict[str, bytes]]:
    if stat.S_ISLNK(mode):
        return os.readlink(name, dir_fd=fd), {}
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return "", {}
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd)
    try:
        names = [known for known in os.listxattr(opened) if known.startswith("user.")]
        valued = ((known, os.getxattr(opened, known)) for known in names)
        xattrs = {known: value for known, value in valued if value}
        if stat.S_ISDIR(mode):
            return "", xattrs
        with open(opened, "rb", closefd=False) as file:
            return hashlib.file_digest(file, "sha256").hexdigest(), xattrs
    finally:
        os.close(opened)


class Podman(NamedTuple):
    """Podman's command line: its service mounts no images, and pulls none from a directory."""

    options: list[str]
    env: Mapping[str, str]

    def tried(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = ["podman", *self.options, *words]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True)

    def run(self, *words: str) -> str:
        done = self.tried(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def pulled(self, sources: Sequence[str]) -> list[str]:
        """Return the numbers of images, which may be of any transport, pulled at once."""
        return self.run("pull", "--quiet", *sources).split()

    def places(self, images: Sequence[str]) -> dict[str, Path]:
        """Return the directories with the files of images, by their numbers."""
        mounted = json.loads(self.run("image", "mount", "--format=json", *images))
        return {one["id"]: Path(one["mountpoint"]) for one in mounted}

    @contextmanager
    def mounted(self, name: str) -> Iterator[Path]:
        self.run("pull", "--quiet", "--tls-verify=false", name)
        yield Path(self.run("image", "mount", name))
        self.run("image", "umount", name)
        self.run("image", "rm", name)


@contextmanager
def ours_mounted(server: str, image: str, where: Path) -> Iterator[Path]:
    where.mkdir()
    subprocess.run([server, image, str(where)], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)
