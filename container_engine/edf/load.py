"""Loads one EDF by name: finds, reads, checks, merges and expands its files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from container_engine.base.errors import UserError
from container_engine.edf.expand import Scope, deferred_names, expand
from container_engine.edf.family import Family
from container_engine.edf.file import EdfFile, Setting
from container_engine.edf.layer import Layer
from container_engine.edf.model import Edf, Loaded, Origin
from container_engine.edf.overlay import NO_OPTIONS, Overlay, apply
from container_engine.edf.plain_keys import PLAIN


def load(
    name: str | None, setting: Setting, search: tuple[str, ...] = (), over: Overlay = NO_OPTIONS
) -> tuple[Loaded, tuple[EdfFile, ...]]:
    """Return the effective EDF `name` with every problem of every file that it is made of.

    Also return the content of each file, in order of rising precedence. The options of `over`
    override all files; if `name` is None, they alone are the EDF. A bad EDF raises no error,
    whatever its bytes: the result has its problems.
    """
    family = Family(setting, search)
    scope = Scope(setting.env, {}, setting.deferred)
    loaded, path = _merged(name, family, scope, over)
    return loaded, () if path is None else family.sequence(path)


def _merged(
    name: str | None, family: Family, scope: Scope, over: Overlay
) -> tuple[Loaded, str | None]:
    try:
        path = None if name is None else family.find(_expanded(name, scope))
    except UserError as error:
        where, see = Origin(name or "", 0), error.see or "edf-value"
        problem = where.error("", error.message, error.hint, see)
        return Loaded(None, (problem,), tuple(family.probed)), None
    below = Layer() if path is None else family.merged(path)
    family.problems.extend(over.problems)
    layer = below if over is NO_OPTIONS else apply(over, below, family.problems)
    # the same mount can be hidden on two paths through the bases
    problems = tuple(dict.fromkeys(family.problems))
    if any(problem.severity == "error" for problem in problems):
        return Loaded(None, problems, tuple(family.probed)), path
    edf = _edf(_name(name, layer), tuple(family.files), layer)
    edf = replace(edf, has_image_of_option=over.layer.image is not None)
    return Loaded(edf, problems, tuple(family.probed)), path


def _name(name: str | None, layer: Layer) -> str:
    """Return the name of the environment; without one, the image of the options, or ""."""
    if name is not None:
        return name
    return layer.image.value if layer.image else ""


def _expanded(name: str, scope: Scope) -> str:
    """Return the name with its variables and a leading ~/ expanded. Raise UserError.

    No shell expands the ~ of --environment=~/x.toml, or anything on an #SBATCH line.
    """
    text = expand(f"${{HOME}}{name[1:]}" if name.startswith("~/") else name, scope)
    if isinstance(text, str):
        return text
    unknown = ", ".join(f"'{variable}'" for variable in deferred_names(text))
    raise UserError(f"the name of an environment cannot depend on {unknown}")


def _edf(name: str, files: tuple[str, ...], layer: Layer) -> Edf:
    image = layer.image
    plain: dict[str, Any] = {}
    for key in PLAIN:
        if (sourced := getattr(layer, key)) is not None:
            plain |= {key: sourced.value, f"{key}_origin": sourced.origin}
    return Edf(
        name=name,
        files=files,
        image=image.value if image else None,
        image_origin=image.origin if image else None,
        above=tuple((part.value, part.origin) for part in layer.above),
        **plain,
        mounts=tuple(layer.mounts.values()),
        devices=tuple(layer.devices.values()),
        env=tuple(entry for _, entry in sorted(layer.env.items())),
        annotations=tuple(entry for _, entry in sorted(layer.annotations.items())),
        startup=tuple(layer.startup.items()),
    )
