"""Loads the hook catalog: the built-in directory, and a site's directories over it.

A catalog is loaded whole or not at all. A file that cannot be read or trusted could have turned a
hook off, so a launch must not continue with the rest.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.files import owner_fault, owner_fault_above
from container_engine.base.model import MisfitError
from container_engine.base.process import reason
from container_engine.base.text_layout import did_you_mean, nearest
from container_engine.base.toml_positions import Fault
from container_engine.catalog.model import HOOK_NAME, HookFile

FILE = "hook.toml"


class Hook(NamedTuple):
    """One hook of the catalog. `files` are merged into it, the site's own last, which is `file`.

    The annotation `switch` enables it; those of its parameters begin with `annotation`.
    """

    name: str
    files: tuple[str, ...]
    file: str
    data: HookFile
    annotation: str
    switch: str


class Catalog(NamedTuple):
    """All hooks, not to be used if there is a fault. `probed` are all paths examined."""

    hooks: Mapping[str, Hook]
    faults: tuple[Fault, ...]
    probed: tuple[str, ...]


class _Loader:
    def __init__(self, owners: frozenset[int]) -> None:
        self.owners = owners
        self.faults: list[Fault] = []
        self.probed: list[str] = []
        self.files: dict[str, list[str]] = {}
        self.contents: dict[str, dict[str, Any]] = {}

    def directory(self, path: str) -> None:
        """Merge the hooks of a directory, which need not exist."""
        self.probed.append(path)
        if not os.path.lexists(path):
            return
        root = os.path.realpath(path)
        try:
            distrust = owner_fault_above(root, self.owners) or self._distrust(root, root)
            names = sorted(os.listdir(root))
        except OSError as error:
            self.faults.append(Fault(path, reason(error)))
            return
        if distrust:
            self.faults.append(Fault(*distrust))
            return
        for name in names:
            self._entry(root, name)

    def _entry(self, root: str, name: str) -> None:
        place = os.path.join(root, name)
        if not os.path.isdir(place) and not os.path.islink(place):
            # a README or an editor's backup may be beside the hooks
            return
        before = len(self.faults)
        self._distrust_below(place, root)
        if len(self.faults) > before:
            return
        if not re.fullmatch(HOOK_NAME, name):
            self.faults.append(Fault(place, "is not the name of a hook", "write a-z, 0-9 and _"))
            return
        self._merge(name, os.path.join(place, FILE))

    def _distrust_below(self, path: str, root: str) -> None:
        self.probed.append(path)
        distrust = self._distrust(path, root)
        if distrust:
            self.faults.append(Fault(*distrust))
        elif os.path.isdir(path) and not os.path.islink(path):
            for name in sorted(os.listdir(path)):
                self._distrust_below(os.path.join(path, name), root)

    def _distrust(self, path: str, root: str) -> tuple[str, str] | tuple[str, str, str] | None:
        """Return the fault of a file or directory below `root`, a real path; follow symlinks."""
        try:
            real = os.path.realpath(path, strict=True)
            status = os.lstat(real)
        except OSError as error:
            return path, reason(error)
        if real != root and not real.startswith(f"{root}/"):
            return path, f"is a symbolic link out of {root}, to {real}"
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            return path, "is neither a file nor a directory"
        return owner_fault(path, status, self.owners)

    def _merge(self, name: str, file: str) -> None:
        try:
            with open(file, "rb") as stream:
                content = tomllib.load(stream)
        except OSError as error:
            self.faults.append(Fault(file, reason(error)))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            self.faults.append(Fault(file, f"not valid TOML: {error}"))
        else:
            self.files.setdefault(name, []).append(file)
            self.contents[name] = merged(self.contents.get(name, {}), content)

    def hooks(self) -> dict[str, Hook]:
        found = {}
        for name, content in self.contents.items():
            files = tuple(self.files[name])
            try:
                data = HookFile.of(content)
            except MisfitError as error:
                self.faults += [
                    Fault(files[-1], one.message, one.example, one.key) for one in error.misfits
                ]
                continue
            annotation = data.annotation or f"com.hooks.{name}"
            switch = data.switch or f"{annotation}.enabled"
            found[name] = Hook(name, files, files[-1], data, annotation, switch)
        return found


def load(directories: Sequence[str], owners: Iterable[int]) -> Catalog:
    """Load the hooks below `directories`, merging later ones over earlier ones key by key.

    All files and directories must belong to one of `owners` and be writable by nobody else.
    """
    loader = _Loader(frozenset(owners))
    for directory in directories:
        loader.directory(directory)
    hooks = loader.hooks()
    return Catalog(hooks, tuple(loader.faults), tuple(loader.probed))


def merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return `lower` with `upper` merged over it: tables key by key, all else is replaced."""
    result = dict(lower)
    for key, value in upper.items():
        below = result.get(key)
        both = isinstance(below, dict) and isinstance(value, dict)
        result[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result


def hook_named(name: str, hooks: Mapping[str, Hook]) -> Hook:
    """Return a hook of the catalog. Raise UserError if there is none of this name."""
    if name not in hooks:
        message = f"there is no hook '{name}'{did_you_mean(nearest(name, hooks))}"
        raise UserError(message, f"there are {', '.join(sorted(hooks))}")
    return hooks[name]
