"""Recognizes the name of an image where an environment is expected, and the reverse."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from container_engine.edf.locate import is_path, locate, search_path
from container_engine.errors import UserError
from container_engine.images.reference import LOCAL_REGISTRY, RegistryImage, parse
from container_engine.submit.short_name import stored
from container_engine.submit.stores import stores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from container_engine.edf.model import Problem
    from container_engine.site import SiteConfig
    from container_engine.submit.context import Context

_HUB = "docker.io/library/"
# codes of errors about an image that was not found under its name
_NOT_THERE = ("image-unknown", "registry-login", "registry-unreachable", "image-reference")


def image_named(name: str, context: Context, settings: SiteConfig) -> str | None:
    """Return the name under which a store has the image `name`, if any.

    It is `name` itself, or the name of a locally built image with LOCAL_REGISTRY before it.
    """
    if is_path(name):
        return None
    for text in (name, f"{LOCAL_REGISTRY}/{name}"):
        try:
            image = parse(text, context.cwd)
            if isinstance(image, RegistryImage):
                image = stored(image, context, settings)
                if stores(context, settings).find(image) is not None:
                    return text
        except UserError:
            continue
    return None


def is_environment(text: str, context: Context, settings: SiteConfig) -> bool:
    """Check whether an environment can be referred to by this name."""
    if is_path(text):
        return False
    try:
        locate(text, context.cwd, search_path(context.env, settings.edf_path), {})
    except UserError:
        return False
    return True


def with_image_hint(
    problems: Sequence[Problem], name: str, context: Context, settings: SiteConfig
) -> tuple[Problem, ...]:
    """Return the problems of an environment that was not found, with a hint if it is an image."""
    first, *others = problems
    is_beside = os.path.exists(os.path.join(context.cwd, f"{name}.toml"))
    if first.see != "environment-not-found" or is_beside:
        return tuple(problems)
    image = image_named(name, context, settings)
    if image is None:
        return tuple(problems)
    hint = (
        f"'{name}' is an image; an environment for it: ce init {_new(name)} --image {image};"
        f" without one: ce run --image {image} -- COMMAND"
    )
    return (replace(first, hint=hint), *others)


def _new(name: str) -> str:
    """Return a name for an environment with this image."""
    return name.rpartition("/")[2].partition(":")[0].partition("@")[0]


def with_environment_hint(
    error: UserError, text: str, context: Context, settings: SiteConfig, hint: str
) -> UserError:
    """Return the error about an image, with `hint` if it was not found and is an environment.

    In `hint`, {} is the environment's name. Otherwise the hint may name a similar image in a store.
    """
    if error.see not in _NOT_THERE:
        return error
    name = text.removeprefix(_HUB)  # the prefix that pyxis's options give to a plain name
    if is_environment(name, context, settings):
        error.hint = f"'{name}' is an environment: {hint.replace('{}', name)}"
    elif (image := image_named(name, context, settings)) not in {None, name}:
        error.hint = f"'{name}' is not here, but '{image}' is"
    return error
