"""Write a virtual environment as a tar archive in which it may be mounted anywhere.

Nothing is written into the directory itself, which may be somebody else's. Scripts find the
interpreter beside themselves, `activate` finds the directory that it is in, and path files name
their directories from their own. Other files keep the path that they were made with; the first one
is reported, because what reads it looks there.
"""

from __future__ import annotations

import io
import os
import re
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from container_engine.base.mounts import is_in
from container_engine.build.check_venv import ACTIVATE, SHEBANG

# a program for the shell and for Python: to the latter, the second and third line are a string
_LAUNCHER = """#!/bin/sh
'''exec' "$(dirname "$(readlink -f "$0")")/{}" "$0" "$@"
' '''
"""
# dash and its like do not say where a file is that they read
_ACTIVATED = """$(cd "$(dirname "${{BASH_SOURCE:-{}/bin/activate}}")/.." && pwd)"""
_MOST = 1 << 20
# files that say where something came from, or are made again
_HARMLESS = re.compile(r"\.pyc$|\.dist-info/|^bin/activate|^bin/Activate|^pyvenv\.cfg$")


class Archive:
    """The archive of the directory `place`, which was made as one of `prefixes`.

    `bytecode` has what was compiled, in directories of the same names. `bound` is the first file
    that names a prefix, "" for none, once `write` is done.
    """

    def __init__(self, place: str, target: str, prefixes: Sequence[str], bytecode: str) -> None:
        self._place = place
        self._target = target
        self._prefixes = [os.fsencode(prefix) for prefix in prefixes]
        self._bytecode = bytecode
        self.bound = ""

    def write(self, out: IO[bytes], on_read: Callable[[int], None]) -> None:
        """Write the archive; `on_read` is called with the bytes read so far. Raise OSError."""
        done = 0
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for source, name in self._files():
                if stat.S_ISSOCK(os.lstat(source).st_mode):
                    continue  # an archive has none
                entry = archive.gettarinfo(source, name)
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = "root"
                entry.mtime = int(entry.mtime)
                if not entry.isreg():
                    archive.addfile(entry)
                    continue
                with open(source, "rb") as file:
                    self._add(archive, entry, file)
                done += entry.size
                on_read(done)

    def _files(self) -> Iterator[tuple[str, str]]:
        """Yield all files, the directories before their content, in an order of their own."""
        for where, directories, names in os.walk(self._place, onerror=_fail):
            directories.sort()
            below = os.path.relpath(where, self._place)
            made = self._made(below)
            yield where, below
            links = [one for one in directories if os.path.islink(f"{where}/{one}")]
            mine = [name for name in names if name not in made]
            yield from ((f"{where}/{name}", f"{below}/{name}") for name in sorted(links + mine))
            if (
                made
                and os.path.basename(where) != "__pycache__"
                and "__pycache__" not in directories
            ):
                yield self._bytecode, f"{below}/__pycache__"
                yield from self._compiled(below)
            elif os.path.basename(where) == "__pycache__":
                yield from self._compiled(os.path.dirname(below))

    def _made(self, below: str) -> frozenset[str]:
        source = os.path.dirname(below) if os.path.basename(below) == "__pycache__" else below
        return frozenset(name for _path, name in self._pairs(source))

    def _pairs(self, below: str) -> list[tuple[str, str]]:
        directory = os.path.join(self._bytecode, below)
        try:
            names = sorted(name for name in os.listdir(directory) if name.endswith(".pyc"))
        except OSError:
            return []
        return [(f"{directory}/{name}", name) for name in names]

    def _compiled(self, below: str) -> Iterator[tuple[str, str]]:
        for path, name in self._pairs(below):
            yield path, f"{below}/__pycache__/{name}"

    def _add(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, file: IO[bytes]) -> None:
        if entry.size > _MOST:
            archive.addfile(entry, file)
            return
        content = self._changed(entry.name.removeprefix("./"), file.read())
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))

    def _changed(self, name: str, content: bytes) -> bytes:
        if name.endswith(".pth"):
            content = self._with_relative_paths(name, content)
        elif name == "bin/activate":
            place = _ACTIVATED.format(self._target).encode()
            return ACTIVATE.sub(lambda match: match[1] + b'"' + place + b'"', content)
        elif name.startswith("bin/"):
            content = self._with_launcher(content)
        if not self.bound and not _HARMLESS.search(name):
            self.bound = name if any(prefix in content for prefix in self._prefixes) else ""
        return content

    def _with_launcher(self, content: bytes) -> bytes:
        match = SHEBANG.match(content)
        if match is None or match[1] not in self._prefixes:
            return content
        lines = 3 if b"'''exec'" in match[0] else 1
        rest = content.split(b"\n", lines)[lines:]
        return _LAUNCHER.format(os.fsdecode(match[2])).encode() + b"".join(rest)

    def _with_relative_paths(self, name: str, content: bytes) -> bytes:
        site = os.fsencode(os.path.dirname(name))
        lines = content.split(b"\n")
        for number, line in enumerate(lines):
            for prefix in self._prefixes:
                if is_in(os.fsdecode(line), os.fsdecode(prefix)):
                    lines[number] = os.path.relpath(line[len(prefix) + 1 :] or b".", site)
        return b"\n".join(lines)


def _fail(error: OSError) -> None:
    raise error


def lacks_bytecode(place: str, version: str) -> bool:
    """Check whether a module has no bytecode that Python `version` would take."""
    tag = f"cpython-{version.replace('.', '')}"
    for where, _directories, names in os.walk(f"{place}/lib/python{version}"):
        for name in names:
            if not name.endswith(".py"):
                continue
            try:
                source = os.stat(f"{where}/{name}")
                with open(f"{where}/__pycache__/{name[:-3]}.{tag}.pyc", "rb") as file:
                    head = file.read(16)
            except OSError:
                return True
            fields = [int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF]
            made = b"".join(number.to_bytes(4, "little") for number in fields)
            if head[4:8] == bytes(4) and head[8:] != made:
                return True
    return False
