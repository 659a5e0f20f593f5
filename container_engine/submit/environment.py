"""Loads one environment as a launch would, for all verbs that read EDFs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.errors import UserError
from container_engine.edf.expand import Scope
from container_engine.edf.layer import NO_OPTIONS, Layer, Overlay, WithOrigin, alone, no_container
from container_engine.edf.load import EdfFile, Setting, load
from container_engine.edf.locate import search_path
from container_engine.edf.model import Edf, Loaded, Origin, Problem
from container_engine.edf.names import VENV_MARKS, looks_like_file
from container_engine.images.reference import FileImage, parse
from container_engine.images.resolve import refuse_bare_file
from container_engine.plan.hooks import annotation_rule, use
from container_engine.plan.model import HookUse, LaunchPlan
from container_engine.plan.site_context import (
    SiteContext,
    annotation_problems,
    settings_problems,
)
from container_engine.site.model import SiteConfig
from container_engine.submit.context import NONE_GIVEN, Context, Options, configuration
from container_engine.submit.read_site import read_site
from container_engine.submit.refused import RefusedError

if TYPE_CHECKING:
    from container_engine.images.lock_file import Declared


class WithOrigins(NamedTuple):
    """A valid environment, the content of each of its files, and the warnings of a launch.

    `hooks` are the hooks that apply to it.
    """

    edf: Edf
    files: tuple[EdfFile, ...]
    site_context: SiteContext
    problems: tuple[Problem, ...]
    hooks: tuple[HookUse, ...]

    @property
    def site(self) -> SiteConfig:
        return self.site_context.site


def load_effective(
    name: str | None,
    context: Context,
    site_context: SiteContext | None = None,
    options: Options = NONE_GIVEN,
) -> Loaded:
    """Load the environment `name`; an invalid image reference is one of its problems.

    `site_context` is given if the caller has it already. `options` are over the
    environment, or over nothing if `name` is None.
    """
    known = site_context or site_here(context)
    return _read_files_and_options(name, context, known, options)[0]


def load_to_launch(
    name: str | None, context: Context, site_context: SiteContext, options: Options = NONE_GIVEN
) -> Loaded:
    """Load as `load_effective` does, and add an error if no file or option names an image."""
    return _read_files_and_options(name, context, site_context, options, is_launch=True)[0]


def image_alone(image: str) -> Edf:
    """Return the environment that has only an image and no file. Raise UserError."""
    if not image:
        hint = "for example ubuntu:24.04"
        raise UserError("--image: the name of the image is empty", hint, "image-empty")
    return Edf(name=image, files=(), image=image, image_origin=Origin("--image", 0))


def anywhere(edf: Edf, cwd: str) -> Edf:
    """Return the environment with absolute image paths, so that it works in any directory."""
    above = tuple((_absolute(name, cwd), origin) for name, origin in edf.above)
    return replace(edf, image=_absolute(edf.image, cwd), above=above) if edf.image else edf


def _absolute(name: str, cwd: str) -> str:
    image = parse(name, cwd)
    return image.path if isinstance(image, FileImage) else name


def load_with_origins(name: str, context: Context) -> WithOrigins:
    """Return the environment `name` with its history. Raise RefusedError if it is not valid."""
    site_context = site_here(context)
    loaded, files = _read_files_and_options(name, context, site_context)
    if loaded.edf is None:
        raise RefusedError(loaded.problems)
    used = use(loaded.edf, site_context.hooks, site_context.machine, site_context.entries)
    return WithOrigins(loaded.edf, files, site_context, loaded.problems, used.hooks)


def on_host(edf: Edf) -> Problem:
    """Return the warning of an EDF whose image is empty on purpose."""
    return edf.image_place.warning("image", "empty: no container, this runs on the host")


def unfit_environments(
    edf: Edf, plan: LaunchPlan, context: Context
) -> tuple[Sequence[Problem], Sequence[str]]:
    """Return what is wrong with virtual environments of `edf`, and the paths it depends on."""
    candidates = [
        one
        for one in edf.mounts
        if one.kind == "squashfs"
        or any(os.path.exists(f"{one.source}/{mark}") for mark in VENV_MARKS.values())
    ]
    may_bring_one = edf.startup or candidates
    if not may_bring_one or plan.image.on_nodes or not os.path.isfile(plan.image.path):
        return (), ()
    from container_engine.submit import virtual_environments

    return virtual_environments.problems(edf, candidates, plan, context)


def scope_at(origin: Origin, context: Context, site: SiteConfig) -> Scope:
    """Return the scope in which the file of `origin` expands its variables."""
    return Scope(context.env, {"EDF_DIR": os.path.dirname(origin.file)}, site.is_deferred)


def site_here(context: Context) -> SiteContext:
    """Return what the site gives to environments. Raise SiteError."""
    return read_site(context, configuration(context), [])


def _read_files_and_options(
    name: str | None,
    context: Context,
    site_context: SiteContext,
    options: Options = NONE_GIVEN,
    *,
    is_launch: bool = False,
) -> tuple[Loaded, tuple[EdfFile, ...]]:
    """Return the environment and its files; if it is for a launch, it must have an image."""
    site = site_context.site
    over = _overlay(name, options, context, site_context)
    setting = Setting(
        context.env,
        context.cwd,
        site.is_deferred,
        lambda: tuple(map(annotation_rule, site_context.hooks.values())),
        lambda missing: _hint_at_image(missing, context, site),
    )
    loaded, files = load(name, setting, search_path(context.env, site.places.edf_path), over)
    layers = [*(file.layer for file in files), over.layer]
    path = files[-1].path if files and is_launch else ""
    return _judged(loaded, layers, path, context, site_context), files


def _hint_at_image(missing: str, context: Context, site: SiteConfig) -> str:
    from container_engine.submit.image_names import no_environment  # only after a mistake

    return no_environment(missing, context, site)


def _judged(
    loaded: Loaded, layers: Sequence[Layer], path: str, context: Context, site_context: SiteContext
) -> Loaded:
    """Return the environment with the problems of its images and settings, and none if refused.

    If it must have an image, `path` is its own file.
    """
    missing = _missing_image(loaded, layers, path) if path else []
    of_images = tuple(_image_problems(layers, context.cwd))
    if loaded.edf is not None:
        of_settings = settings_problems(loaded.edf, site_context)
    else:
        # an option that is refused already is not refused again for the annotation that it sets
        annotations = {key: entry for layer in layers for key, entry in layer.annotations.items()}
        known = {(problem.file, problem.line) for problem in loaded.problems}
        found = annotation_problems(annotations.values(), site_context)
        of_settings = [one for one in found if (one.file, one.line) not in known]
    problems = (*loaded.problems, *of_settings, *of_images, *missing)
    refused = any(problem.severity == "error" for problem in problems)
    return replace(loaded, edf=None if refused else loaded.edf, problems=problems)


def _overlay(
    name: str | None, options: Options, context: Context, site_context: SiteContext
) -> Overlay:
    """Return what the options add. Raise RefusedError if they have nothing to apply to."""
    if name is not None and not options.words:
        return NO_OPTIONS
    over = options.overlay(context.env, context.cwd)
    if name is not None:
        return over
    if over.layer.image is None:
        wrong = any(problem.severity == "error" for problem in over.problems)
        raise RefusedError([*over.problems, *([] if wrong else [no_container(over)])])
    origin = Origin(site_context.config.origin("pyxis_writable"), 0)
    writable = WithOrigin(site_context.site.pyxis_writable, origin)
    return alone(over, writable=writable, mounts_home=site_context.site.pyxis_mount_home)


def _missing_image(loaded: Loaded, layers: Sequence[Layer], path: str) -> list[Problem]:
    """Return the error of a launch if no layer has an image; `image = ""` is one.

    In doubt there is none: a file with errors may name an image.
    """
    doubtful = ("image", "base_environment")
    if any(not error.key or error.key.startswith(doubtful) for error in loaded.errors):
        return []
    if any(layer.image for layer in layers):
        return []
    message = "missing, so this environment can only serve as a base for others"
    typo = next((one for one in loaded.problems if one.see == "edf-unknown-key"), None)
    hint = f"is line {typo.line} of {typo.file}, which has no effect, meant?" if typo else None
    return [Origin(path, 0).error("image", message, hint, "image-not-named")]


def _image_problems(layers: Sequence[Layer], cwd: str) -> Iterator[Problem]:
    """Yield the problems of the effective images, even if the environment has other errors."""
    layer = next((layer for layer in reversed(layers) if layer.image), None)
    if layer is None or layer.image is None or not layer.image.value:
        return
    for image in (layer.image, *layer.above):
        name, origin = image.value, image.origin
        try:
            parse(name, cwd)
            refuse_bare_file(name, cwd)
        except UserError as error:
            yield origin.error("image", error.message, error.hint)
            continue
        if looks_like_file(name):
            message = f"'{name}' is the name of an image in a registry, not a path"
            yield origin.warning("image", message, f"write './{name}' for a file")


def declared(name: str, context: Context, site_context: SiteContext) -> Declared:
    """Return the state of the environment `name`. Raise RefusedError if it is not valid.

    Variables are not expanded, so the state is the same for all users.
    """
    from container_engine.edf.show import histories, quoted  # only locks need these
    from container_engine.images.lock_file import Declared, digest_of

    traced = load_with_origins(name, context)
    values = {}
    for entry in histories(traced.edf, traced.files):
        value, written = entry.effective.value, entry.effective.written
        values[entry.key] = quoted(value) if written is None else written
    used = use(traced.edf, site_context.hooks, site_context.machine, site_context.entries)
    # automatic hooks, and what they imply, depend on the host
    asked = [hook for hook in used.hooks if hook.automatic_when is None]
    releases = {hook.name: hook.release for hook in asked}
    images = [values.get("image", "")]
    if traced.edf.above:
        images = [values[f"image[{number}]"] for number in range(len(traced.edf.images))]
    return Declared(digest_of(sorted(values.items())), tuple(images), releases)
