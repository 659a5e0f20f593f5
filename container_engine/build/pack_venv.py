"""Pack a virtual environment into a SquashFS file that an environment mounts and activates."""

from __future__ import annotations

import io
import os
import re
import shlex
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from container_engine.base import process
from container_engine.base.errors import CeError, UserError
from container_engine.base.mounts import is_in
from container_engine.build.check_venv import ACTIVATE, SHEBANG
from container_engine.edf.entries import mount_text
from container_engine.edf.model import Mount, Origin, escape
from container_engine.edf.names import VENV_MARKS
from container_engine.edf.show import quoted
from container_engine.images.listener import Listener
from container_engine.images.pack.pack import Packer, sizes
from container_engine.images.squashfs import Superblock
from container_engine.plan.model import LaunchPlan
from container_engine.submit.context import Context
from container_engine.submit.prepare import prepare
from container_engine.submit.refused import RefusedError
from container_engine.submit.virtual_environments import CODE, ask

_NOT_COMPARED = "not compared with an image, not compiled: --for ENVIRONMENT does both"
# where the image's interpreter sees it while it compiles
_SEEN, _MADE = "/ce-venv", "/ce-bytecode"
_COMPILE_S = 3600
# Compiles into the directory of the first argument, not into __pycache__. The variable reaches the
# processes in which Python 3.13 compiles, unlike an option; no other one of Python's does.
_COMPILE = """\
import os, sys
made, *words = sys.argv[1:]
os.chdir(made)
kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
argv = [sys.executable, "-s", "-m", "compileall", "-qq", "-j", "0", *words]
os.execve(sys.executable, argv, {**kept, "PYTHONPYCACHEPREFIX": made})
"""
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


class PackedVenv:
    """A virtual environment to be packed into `file`, for the environment `name` if it is given.

    Raise CeError if it is none, or would not start.
    """

    def __init__(self, place: str, file: str, name: str | None, context: Context) -> None:
        self._place = os.path.abspath(place)
        self._file = os.path.abspath(file)
        self._context = context
        self._refuse_others(place)
        self._plan = None if name is None else self._planned(name)
        self._name, self._version = name, ""
        self._notes: list[str] = [] if name is not None else [_NOT_COMPARED]
        self._prefixes = {self._place, os.path.realpath(self._place), *self._activated()}
        if self._plan is not None:
            self._compare(self._plan)

    @property
    def lines(self) -> Sequence[str]:
        """Return the lines for an EDF."""
        origin = Origin("", 0)
        mount = Mount("squashfs", self._file, self._place, (), origin)
        text = f"source {shlex.quote(f'{self._place}/bin/activate')}"
        mounts = quoted(mount_text(mount, escape))
        return f"mounts = [{mounts}]", f"startup = [{quoted(escape(text))}]"

    def _refuse_others(self, place: str) -> None:
        if os.path.isdir(f"{place}/{VENV_MARKS['conda']}"):
            words = ["conda-pack", "-p", self._place, "--dest-prefix", self._place]
            words += ["--format", "squashfs", "-o", self._file]
            message = "a conda environment, which names its own path in many files"
            lines = "; ".join(self.lines)
            hint = f"{shlex.join(words)} packs it; in the EDF: {lines}"
            raise UserError(message, hint, CODE, name=place)
        mark = VENV_MARKS["virtual"]
        if not os.path.isfile(f"{place}/{mark}"):
            hint = "leave out --venv for other directories"
            raise UserError(f"not a virtual environment, it has no {mark}", hint, CODE, name=place)

    def _planned(self, name: str) -> LaunchPlan:
        plan = prepare(name, self._context).plan
        if plan is None:
            raise UserError("this environment has no image", see="image-not-named", name=name)
        return plan

    def _activated(self) -> Sequence[str]:
        """Return the path that its `activate` has for it."""
        try:
            with open(f"{self._place}/bin/activate", "rb") as file:
                match = ACTIVATE.search(file.read())
        except OSError:
            match = None
        return () if match is None else (os.fsdecode(match[3]),)

    def _compare(self, plan: LaunchPlan) -> None:
        said = ask(self._place, plan, self._context, self._place)
        here = Origin(self._place, 0)
        refusals = [here.error("", message, hint, CODE) for message, hint in said["refusals"]]
        if refusals:
            raise RefusedError(refusals)
        self._version = said["version"]
        self._prefixes |= set(said["moved"])
        self._notes += [f"{message}: {hint}" for message, hint in said["warnings"]]

    def pack(self, made: str, packer: Packer, listener: Listener) -> Superblock:
        """Pack it into the file `made`. Raise CeError or OSError."""
        total = sum(sizes(self._place))

        def on_read(done: int) -> None:
            listener.far(self._place, "packing", min(done, total), total)

        with tempfile.TemporaryDirectory(prefix="ce-venv-") as work:
            bytecode = self._compiled(work)
            archive = Archive(self._place, self._place, sorted(self._prefixes), bytecode)
            block = packer.pack_archive(made, lambda out: archive.write(out, on_read))
        if archive.bound:
            self._notes.append(
                f"mount it at {self._place} only: {archive.bound} in it names the path"
            )
        for note in self._notes:
            listener.say(f"{self._place}: {note}")
        return block

    def _compiled(self, work: str) -> str:
        """Return the directory with what the image's own Python makes of modules without bytecode.

        It is empty where that is not possible, with a note why.
        """
        os.chmod(work, 0o755)
        found = f"{work}{_SEEN}"
        if self._plan is None or not lacks_bytecode(self._place, self._version):
            return found
        image = self._plan.image
        one = ["--container-image", image.path]
        mounts = f"{self._place}:{_SEEN}:ro,{work}:{_MADE}"
        modules = f"{_SEEN}/lib/python{self._version}"
        argv = [
            *(f"{self._context.prefix}/bin/ce", "run", "--container-mounts", mounts),
            *((str(self._name),) if image.above else one),
            *("--", f"{_SEEN}/bin/python3", "-I", "-c", _COMPILE, _MADE),
            *("-s", _SEEN, "-p", self._place, modules),
        ]
        why = "the image's Python wrote none"
        try:
            process.output(argv, self._context.tools_env, _COMPILE_S)
        except CeError as error:
            # it also fails for a file in another language, such as a template
            why = _complaint(error)
        if not os.path.isdir(found):
            self._notes.append(f"no bytecode was made, so that each rank compiles: {why}")
        return found


def _complaint(error: CeError) -> str:
    """Return what a failed `ce run` complains about, else its command, else how that ended."""
    if not isinstance(error, process.CommandError):
        return str(error)
    ours = re.findall(r"(?m)^ce: error: (.*)", error.stderr)
    commands = re.findall(r"(?m)^(?!ce: )(.+)", error.stderr)
    return str([*ours, *commands[-1:], f"its Python ended with exit code {error.status}"][0])


class Archive:
    """A tar archive of the directory `place`, made as one of `prefixes`, to be mounted anywhere.

    Nothing is written into the directory itself, which may be somebody else's. Scripts find the
    interpreter beside themselves, `activate` finds the directory that it is in, and path files name
    their directories from their own. Other files keep the path that they were made with; the first
    one is reported, because what reads it looks there.

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
