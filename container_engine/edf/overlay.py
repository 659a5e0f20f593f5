"""Options over an environment: what they add to its files, or are by themselves. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from container_engine.edf.layer import Layer, WithOrigin, add_mount, merge
from container_engine.edf.model import Annotation, EnvEntry, Mount, Origin, Problem
from container_engine.edf.names import CONTAINER_NAME, ROOT_REMAP

SEE = "container-option"


class Unmount(NamedTuple):
    """A mount of the environment to remove; an error if there is none, unless it `may_fail`."""

    target: str
    origin: Origin
    may_fail: bool


class Home(NamedTuple):
    """The decision whether the user's home is mounted."""

    is_mounted: bool
    origin: Origin


@dataclass(frozen=True, slots=True)
class Overlay:
    """The part of an environment that options add.

    `unmounted` are the mounts of the environment that the options remove; `home` is None if no
    option decides. `first` is the place of the first option. `env` is the caller's environment, and
    `has_image_of_variable` tells that a variable in it names the image.
    """

    layer: Layer = field(default_factory=Layer)
    unmounted: tuple[Unmount, ...] = ()
    home: Home | None = None
    problems: tuple[Problem, ...] = ()
    first: Origin | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    has_image_of_variable: bool = False


NO_OPTIONS = Overlay()


def no_container(over: Overlay) -> Problem:
    """Return the error for options that have neither an image nor an environment."""
    hint = "add --container-image=IMAGE or --environment=NAME"
    named = over.layer.annotations.get(CONTAINER_NAME)
    if named is not None:
        message = f"this job has no container '{named.value}' to continue"
        return named.origin.error("", message, f"to make it, {hint}", SEE)
    where = over.first or Origin("--container-image", 0)
    return where.error("", "there is no container to apply it to", hint, SEE)


def apply(over: Overlay, lower: Layer, problems: list[Problem]) -> Layer:
    """Return the environment `lower` with the options applied over it."""
    below = _with_home(over, lower, problems)
    mounts = dict(below.mounts)
    for one in over.unmounted:
        if mounts.pop(one.target, None) is None and not one.may_fail:
            message = f"umount:{one.target}: the environment mounts nothing there"
            problems.append(one.origin.error("", message, see=SEE))
    _warn_of_image(over, lower, problems)
    return merge(replace(below, mounts=mounts), over.layer, problems)


def alone(over: Overlay, *, writable: WithOrigin[bool], mounts_home: bool) -> Overlay:
    """Return the options with the site's defaults for a container without an environment."""
    layer = replace(over.layer, writable=over.layer.writable or writable)
    home = over.home
    if home is None and mounts_home:
        home = Home(True, Origin("container-mount-home of the site", 0))
    return replace(over, layer=layer, home=home)


def _warn_of_image(over: Overlay, lower: Layer, problems: list[Problem]) -> None:
    """Warn if a variable, which may have been set long ago, replaces the image of a file."""
    image = over.layer.image
    if image is None or not image.value or not lower.image or not over.has_image_of_variable:
        return
    message = f"'{image.value}' replaces '{lower.image.value}' of {lower.image.origin}"
    problems.append(image.origin.warning("", message, "unset the variable", SEE))


def _with_home(over: Overlay, layer: Layer, problems: list[Problem]) -> Layer:
    """Return the layer with the user's home mounted or not, as an option decides.

    If an option makes the user root, HOME is /root.
    """
    is_root = _is_root(layer.annotations | over.layer.annotations)
    env, mounts = dict(layer.env), dict(layer.mounts)
    of_option = is_root and ROOT_REMAP in over.layer.annotations
    if of_option and "HOME" not in env | over.layer.env:
        env["HOME"] = EnvEntry("HOME", "/root", over.layer.annotations[ROOT_REMAP].origin)
    if over.home is not None:
        home = over.env.get("HOME", "")
        if not home.startswith("/"):
            problems.append(over.home.origin.error("", "HOME is not set to a path", see=SEE))
            return layer
        if over.home.is_mounted:
            target = "/root" if is_root else posixpath.normpath(home)
            add_mount(mounts, Mount("bind", home, target, (), over.home.origin), problems)
        else:
            mounts.pop(home, None)
    return replace(layer, env=env, mounts=mounts)


def _is_root(annotations: Mapping[str, Annotation]) -> bool:
    remap = annotations.get(ROOT_REMAP)
    return remap is not None and remap.value == "true"
