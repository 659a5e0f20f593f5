"""Loads one EDF by name: finds, reads, checks, merges and expands its files."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from container_engine.base.errors import UserError
from container_engine.base.toml_positions import Positions, TooDeepError
from container_engine.edf.checks import Report, TomlFloat, check, clip
from container_engine.edf.expand import Scope, expand
from container_engine.edf.layer import NO_OPTIONS, Base, Item, Layer, Overlay, apply, edf_of, merge
from container_engine.edf.locate import NotFoundError, SourceError, is_path, locate, read_source
from container_engine.edf.model import Loaded, Origin, Problem, deferred_names
from container_engine.edf.values import Reader

if TYPE_CHECKING:
    from container_engine.edf.annotations import HookRules


@dataclass(frozen=True, slots=True)
class Setting:
    """The context for reading a file: environment and directory of the caller, and the hooks.

    `env` is only asked for single names, never iterated, so that the caller can record which
    variables were used. `cwd` is absolute. `deferred` checks whether a variable that is undefined
    here exists on the node; `hooks` returns the rules for annotations. `hint` says what a name may
    mean that no file has, such as an image; "" if nothing is known.
    """

    env: Mapping[str, str]
    cwd: str
    deferred: Callable[[str], bool]
    hooks: Callable[[], HookRules] = tuple
    hint: Callable[[str], str] = lambda _name: ""


@dataclass(frozen=True, slots=True)
class EdfFile:
    """The content of one file without its bases; `written` has its values before expansion."""

    path: str
    layer: Layer
    bases: tuple[Base, ...]
    problems: tuple[Problem, ...]
    written: dict[Item, str]


def read_file(path: str, setting: Setting, directory: str | None = None) -> EdfFile:
    """Read, check and expand one file. Problems are part of the result and raise no error.

    `directory` is the directory of the search path in which the file was found; None if the file
    was named by its path.
    """
    try:
        text = read_source(path, directory)
        positions = Positions(text)
        data = tomllib.loads(text, parse_float=TomlFloat)
    except (SourceError, TooDeepError) as error:
        problem = Origin(path, error.line).error("", error.reason, error.hint, error.see)
    except tomllib.TOMLDecodeError as error:
        from container_engine.edf.syntax import syntax_problem

        problem = syntax_problem(path, text, error)
    except (ValueError, RecursionError):
        # Python refuses to read an integer of thousands of digits
        problem = Origin(path, 0).error("", "contains a number with thousands of digits")
    else:
        return _interpret(data, Report(path, positions), setting)
    return EdfFile(path, Layer(), (), (problem,), {})


def _interpret(data: dict[str, Any], report: Report, setting: Setting) -> EdfFile:
    document, indexes = check(data, report)
    scope = Scope(setting.env, {"EDF_DIR": os.path.dirname(report.file)}, setting.deferred)
    reader = Reader(document, indexes, report, scope, setting.cwd, setting.hooks)
    image, above = reader.images()
    layer = Layer(
        image=image,
        above=above,
        **reader.plain(),
        mounts=reader.mounts(),
        devices=reader.devices(),
        env=reader.env(),
        annotations=reader.annotations(),
        startup=reader.startup(),
        checks=reader.checks(),
    )
    bases = reader.bases()
    return EdfFile(report.file, layer, bases, report.sorted(), reader.written)


MAX_LEVELS = 10
MAX_FILES = 100


@dataclass(frozen=True, slots=True)
class _WithBases:
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
        self._merged: dict[str, _WithBases] = {}
        self._read: dict[str, EdfFile] = {}
        self._bases: dict[str, tuple[str, ...]] = {}
        self._searched: dict[str, str | None] = {}

    def sequence(self, path: str) -> tuple[EdfFile, ...]:
        """Return the file and all its bases, in order of rising precedence, each at its last place.

        `path` must have been merged before.
        """
        return tuple(self._read[file] for file in self._sequence(path, {}))

    def find(self, name: str) -> str:
        """Return the path for a name. Raise NotFoundError."""
        path, directory = locate(name, self._setting.cwd, self._search, self.probed)
        # the first mention decides how a file is read, once; by path it is the user's own choice
        self._searched.setdefault(path, directory)
        return path

    def merged(self, path: str, above: tuple[str, ...] = ()) -> _WithBases:
        """Return a file with its bases, inherited by those `above`; add to `problems`."""
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
        result = _WithBases(merge(layer, own.layer, self.problems), (path, *chain))
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

    def _base(self, base: Base, line: tuple[str, ...]) -> _WithBases | None:
        try:
            path = self.find(base.name)
            self._check_limits(path, line)
        except UserError as error:
            hint, see = error.hint or _beside(base, error), error.see or "edf-inheritance"
            self.problems.append(base.origin.error(base.key, clip(error.message), hint, see))
            return None
        return self.merged(path, line)

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


def load(
    name: str | None, setting: Setting, search: tuple[str, ...] = (), over: Overlay = NO_OPTIONS
) -> tuple[Loaded, tuple[EdfFile, ...]]:
    """Return the effective EDF `name` with every problem of every file that it is made of.

    Also return the content of each file, in order of rising precedence. The options of `over`
    override all files; if `name` is None, they alone are the EDF. A bad EDF raises no error,
    whatever its bytes: the result has its problems.
    """
    family = Family(setting, search)
    try:
        path = None if name is None else family.find(_expanded(name, setting))
    except UserError as error:
        where, see = Origin(name or "", 0), error.see or "edf-value"
        hint = setting.hint(name or "") if see == "environment-not-found" else ""
        problem = where.error("", error.message, hint or error.hint, see)
        return Loaded(None, (problem,), tuple(family.probed)), ()
    below = Layer() if path is None else family.merged(path).layer
    family.problems.extend(over.problems)
    layer = below if over is NO_OPTIONS else apply(over, below, family.problems)
    # the same mount can be hidden on two paths through the bases
    problems = tuple(dict.fromkeys(family.problems))
    edf = None
    if not any(problem.severity == "error" for problem in problems):
        if name is None:
            name = layer.image.value if layer.image else ""
        edf = edf_of(name, tuple(family.files), layer, of_option=over.layer.image is not None)
    files = () if path is None else family.sequence(path)
    return Loaded(edf, problems, tuple(family.probed)), files


def _expanded(name: str, setting: Setting) -> str:
    """Return the name with its variables and a leading ~/ expanded. Raise UserError.

    No shell expands the ~ of --environment=~/x.toml, or anything on an #SBATCH line.
    """
    scope = Scope(setting.env, {}, setting.deferred)
    text = expand(f"${{HOME}}{name[1:]}" if name.startswith("~/") else name, scope)
    if isinstance(text, str):
        return text
    unknown = ", ".join(f"'{variable}'" for variable in deferred_names(text))
    raise UserError(f"the name of an environment cannot depend on {unknown}")
