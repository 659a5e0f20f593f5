"""Reads one file into a layer and the names of its bases, with every problem in it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from container_engine.base.toml_positions import Positions, TooDeepError, find_positions
from container_engine.edf.expand import Scope
from container_engine.edf.hook_values import HookRules
from container_engine.edf.layer import Base, Item, Layer
from container_engine.edf.model import Origin, Problem
from container_engine.edf.problems import Report
from container_engine.edf.source import SourceError, read_source
from container_engine.edf.syntax import syntax_problem
from container_engine.edf.value_types import TomlFloat, check
from container_engine.edf.values import Reader


@dataclass(frozen=True, slots=True)
class Setting:
    """The context for reading a file: environment and directory of the caller, and the hooks.

    `env` is only asked for single names, never iterated, so that the caller can record which
    variables were used. `cwd` is absolute. `deferred` checks whether a variable that is undefined
    here exists on the node; `hooks` are the rules for annotations.
    """

    env: Mapping[str, str]
    cwd: str
    deferred: Callable[[str], bool]
    hooks: HookRules = ()


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
        positions = find_positions(text)
    except (SourceError, TooDeepError) as error:
        return _broken(Origin(path, error.line).error("", error.reason, error.hint, error.see))
    data = _parse(path, text)
    if isinstance(data, Problem):
        return _broken(data)
    return _interpret(path, data, positions, setting)


def _broken(problem: Problem) -> EdfFile:
    return EdfFile(problem.file, Layer(), (), (problem,), {})


def _parse(path: str, text: str) -> dict[str, Any] | Problem:
    try:
        return tomllib.loads(text, parse_float=TomlFloat)
    except tomllib.TOMLDecodeError as error:
        return syntax_problem(path, text, error)
    except (ValueError, RecursionError):
        # Python refuses to read an integer of thousands of digits
        return Origin(path, 0).error("", "contains a number with thousands of digits")


def _interpret(path: str, data: dict[str, Any], positions: Positions, setting: Setting) -> EdfFile:
    report = Report(path, positions)
    checked = check(data, report)
    scope = Scope(setting.env, {"EDF_DIR": os.path.dirname(path)}, setting.deferred)
    reader = Reader(checked, report, scope, setting.cwd, setting.hooks)
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
    )
    bases = reader.bases()
    return EdfFile(path, layer, bases, report.sorted(), reader.written)
