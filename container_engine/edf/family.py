"""Follows `base_environment`: merges all files of one EDF into one layer."""

from __future__ import annotations

import os
from dataclasses import dataclass

from container_engine.base.errors import UserError
from container_engine.edf.file import EdfFile, Setting, read_file
from container_engine.edf.layer import Base, Layer, merge
from container_engine.edf.locate import NotFoundError, is_path, locate
from container_engine.edf.model import Problem
from container_engine.edf.problems import clip

MAX_LEVELS = 10
MAX_FILES = 100


@dataclass(frozen=True, slots=True)
class _Merged:
    """A file with all its bases; `chain` is the longest chain of files that begins with it."""

    layer: Layer
    chain: tuple[str, ...]


class Family:
    """All files of one EDF. Each is read and checked once, however often it is inherited."""

    def __init__(self, setting: Setting, search: tuple[str, ...]) -> None:
        self.problems: list[Problem] = []
        self.probed: dict[str, None] = {}
        self.files: list[str] = []
        self._setting = setting
        self._search = search
        self._merged: dict[str, _Merged] = {}
        self._read: dict[str, EdfFile] = {}
        self._bases: dict[str, tuple[str, ...]] = {}
        self._searched: dict[str, str | None] = {}

    def merged(self, path: str) -> Layer:
        """Return the layer of a file and all its bases; add their problems to `problems`."""
        return self._visit(path, ()).layer

    def sequence(self, path: str) -> tuple[EdfFile, ...]:
        """Return the file and all its bases, in order of rising precedence, each at its last place.

        `path` must have been merged before.
        """
        return tuple(self._read[file] for file in self._sequence(path, {}))

    def find(self, name: str) -> str:
        """Return the path for a name. Raise NotFoundError."""
        found = locate(name, self._setting.cwd, self._search, self.probed)
        # the first mention decides how a file is read, once; by path it is the user's own choice
        self._searched.setdefault(found.path, found.directory)
        return found.path

    def _visit(self, path: str, above: tuple[str, ...]) -> _Merged:
        known = self._merged.get(path)
        if known is not None:
            return known
        self.probed.setdefault(path)
        own = read_file(path, self._setting, self._searched.get(path))
        self.problems.extend(own.problems)
        self._read[path] = own
        line = (*above, path)
        layer = Layer()
        chain: tuple[str, ...] = ()
        bases: list[str] = []
        for base in own.bases:
            inherited = self._base(base, line)
            if inherited is not None:
                layer = merge(layer, inherited.layer, self.problems)
                chain = max(chain, inherited.chain, key=len)
                bases.append(inherited.chain[0])
        self._bases[path] = tuple(bases)
        result = _Merged(merge(layer, own.layer, self.problems), (path, *chain))
        self._merged[path] = result
        self.files.append(path)
        return result

    def _sequence(self, path: str, known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        if path not in known:
            order: dict[str, None] = {}
            for base in self._bases[path]:
                below = self._sequence(base, known)
                order = {file: None for file in order if file not in below} | dict.fromkeys(below)
            known[path] = (*order, path)
        return known[path]

    def _base(self, base: Base, line: tuple[str, ...]) -> _Merged | None:
        try:
            path = self.find(base.name)
            self._check_limits(path, line)
        except UserError as error:
            hint, see = error.hint or _beside(base, error), error.see or "edf-inheritance"
            self.problems.append(base.origin.error(base.key, clip(error.message), hint, see))
            return None
        return self._visit(path, line)

    def _check_limits(self, path: str, line: tuple[str, ...]) -> None:
        if path in line:
            circle = _arrows((*line[line.index(path) :], path))
            raise UserError(f"inherits from itself: {circle}")
        known = self._merged.get(path)
        # every file of `line` is still being read and so not yet counted in `_merged`
        if known is None and len(self._merged) + len(line) >= MAX_FILES:
            raise UserError(f"more than {MAX_FILES} files")
        below = known.chain if known is not None else (path,)
        if len(line) + len(below) > MAX_LEVELS:
            raise UserError(f"more than {MAX_LEVELS} levels: {_arrows((*line, *below))}")


def _beside(base: Base, error: UserError) -> str | None:
    """Return a hint for the usual mistake: a path relative to the file that names the base."""
    if not isinstance(error, NotFoundError) or not is_path(base.name):
        return None
    # for an absolute path this is the path itself, which does not exist
    if not os.path.exists(os.path.join(os.path.dirname(base.origin.file), base.name)):
        return None
    name = base.name.removeprefix("./")
    return f"write '${{EDF_DIR}}/{name}' for a file beside this one"


def _arrows(files: tuple[str, ...]) -> str:
    return " -> ".join(files)
