"""Pack a virtual environment into a SquashFS file that an environment mounts and activates."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Sequence

from container_engine.base import process
from container_engine.base.errors import CeError, UserError
from container_engine.build.check_venv import ACTIVATE
from container_engine.build.venv_archive import Archive, lacks_bytecode
from container_engine.edf.entries import mount_text
from container_engine.edf.model import Mount, Origin, escape
from container_engine.edf.names import VENV_MARKS
from container_engine.edf.show import quoted
from container_engine.images.listener import Listener
from container_engine.images.pack.pack import Packer
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
        total = sum(
            os.lstat(os.path.join(where, name)).st_size
            for where, _directories, names in os.walk(self._place)
            for name in names
        )

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
        words = ["-I", "-X", f"pycache_prefix={_MADE}", "-m", "compileall", "-qq", "-j", "0"]
        argv = [
            *(f"{self._context.prefix}/bin/ce", "run", "--container-mounts", mounts),
            *((str(self._name),) if image.above else one),
            *("--", f"{_SEEN}/bin/python3", *words, "-s", _SEEN, "-p", self._place, modules),
        ]
        try:
            process.output(argv, self._context.tools_env, _COMPILE_S)
        except CeError as error:
            # it also fails for a file in another language, such as a template
            if not os.path.isdir(found):
                why = re.sub(r"^ce: error: ", "", str(error))
                self._notes.append(f"no bytecode was made, so that each rank compiles: {why}")
        return found
