"""One environment, loaded as a launch would load it: what `ce validate` and `ce render` share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from container_engine.edf.load import load, search_path
from container_engine.edf.model import Problem
from container_engine.errors import UserError
from container_engine.images.reference import looks_like_file, parse
from container_engine.site import SiteConfig
from container_engine.site import find as find_site
from container_engine.site import load as load_site

if TYPE_CHECKING:
    from container_engine.cli.context import Context
    from container_engine.edf.model import Edf, Loaded, Severity


def load_effective(name: str, context: Context) -> Loaded:
    """The environment `name`; an image that nothing could refer to is a problem of it too."""
    site = _site(context)
    loaded = load(
        name,
        env=context.env,
        cwd=context.cwd,
        search=search_path(context.env, site.edf_dir),
        deferred=site.is_deferred,
    )
    if loaded.edf is None:
        return loaded
    problems = (*loaded.problems, *_image_problems(loaded.edf, context.cwd))
    refused = any(problem.severity == "error" for problem in problems)
    return replace(loaded, edf=None if refused else loaded.edf, problems=problems)


def _site(context: Context) -> SiteConfig:
    path = context.site_file or find_site(context.prefix)
    return SiteConfig() if path is None else load_site(path, context.uid)


def _image_problems(edf: Edf, cwd: str) -> list[Problem]:
    if not edf.image:
        return []
    try:
        parse(edf.image, cwd)
    except UserError as error:
        return [_problem("error", edf, error.message, error.hint)]
    if not looks_like_file(edf.image):
        return []
    message = f"'{edf.image}' is the name of an image in a registry, not a path"
    return [_problem("warning", edf, message, f"write './{edf.image}' for a file")]


def _problem(severity: Severity, edf: Edf, message: str, hint: str | None) -> Problem:
    origin = edf.image_origin
    file, line = (origin.file, origin.line) if origin else (edf.name, 0)
    return Problem(severity, file, line, "image", message, hint)
