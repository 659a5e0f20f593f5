"""The values of one EDF file, and what goes over them: those of other files, and options."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from container_engine.base.run_check import ListedCheck
from container_engine.edf.document import PLAIN
from container_engine.edf.model import (
    Annotation,
    Device,
    Edf,
    EnvEntry,
    Mount,
    Origin,
    Problem,
    Text,
    shown,
)
from container_engine.edf.names import CONTAINER_NAME, ROOT_REMAP

T = TypeVar("T")

# A key and what identifies an item in it: the target of a mount, the name of a variable, or "".
Item = tuple["str", "Text"]


@dataclass(frozen=True, slots=True)
class WithOrigin(Generic[T]):
    """A single value and where it was written."""

    value: T
    origin: Origin


@dataclass(frozen=True, slots=True)
class Base:
    """An entry of `base_environment`; `key` is how a message names it."""

    name: str
    origin: Origin
    key: str


@dataclass(frozen=True, slots=True)
class Layer:
    """The values of one file, or of several after a merge; None and empty mean not set.

    The mappings keep the order of writing. `mounts` has one entry per destination. `above` are the
    images stacked on `image`, the highest last.
    """

    image: WithOrigin[str] | None = None
    above: tuple[WithOrigin[str], ...] = ()
    description: WithOrigin[Text] | None = None
    workdir: WithOrigin[Text] | None = None
    writable: WithOrigin[bool] | None = None
    entrypoint: WithOrigin[bool] | None = None
    mounts: dict[Text, Mount] = field(default_factory=dict)
    devices: dict[Text, Device] = field(default_factory=dict)
    env: dict[str, EnvEntry] = field(default_factory=dict)
    annotations: dict[str, Annotation] = field(default_factory=dict)
    startup: dict[Text, Origin] = field(default_factory=dict)
    checks: dict[str, WithOrigin[ListedCheck]] = field(default_factory=dict)


def image_item(number: object) -> str:
    """Return the second part of the Item of an image of a stack; number 0 is the base."""
    return str(number) if number else ""


def merge(lower: Layer, upper: Layer, problems: list[Problem]) -> Layer:
    """Merge two layers, `upper` winning; a mount that hides another one adds a warning."""
    mounts = dict(lower.mounts)
    for mount in upper.mounts.values():
        add_mount(mounts, mount, problems)
    return Layer(
        image=upper.image or lower.image,
        above=upper.above if upper.image else lower.above,
        **{key: getattr(upper, key) or getattr(lower, key) for key in PLAIN},
        mounts=mounts,
        devices=_appended(lower.devices, upper.devices),
        env=lower.env | upper.env,
        annotations=lower.annotations | upper.annotations,
        startup=_appended(lower.startup, upper.startup),
        checks=lower.checks | upper.checks,
    )


def _appended(lower: dict[Text, T], upper: dict[Text, T]) -> dict[Text, T]:
    """Return the items of both; an item in both keeps the place and value it has in `lower`."""
    return lower | {item: value for item, value in upper.items() if item not in lower}


def add_mount(mounts: dict[Text, Mount], mount: Mount, problems: list[Problem]) -> None:
    """Add a mount, replacing any with the same destination; ignore an exact repetition."""
    other = mounts.get(mount.target)
    if other is not None:
        if _same(other, mount):
            return
        if other.source != mount.source:
            problems.append(_hidden(other, mount))
    mounts[mount.target] = mount


def _same(one: Mount, other: Mount) -> bool:
    return (one.kind, one.source, one.options) == (other.kind, other.source, other.options)


def _hidden(loser: Mount, winner: Mount) -> Problem:
    target, source, hidden = map(shown, (winner.target, winner.source, loser.source))
    both = f"'{target}' is mounted from '{source}' here and from '{hidden}' in {loser.origin}"
    return winner.origin.warning("mounts", f"{both}; this one is used")


def edf_of(name: str, files: tuple[str, ...], layer: Layer, *, of_option: bool = False) -> Edf:
    """Return the environment that a layer alone is."""
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
        checks=tuple((check.value, check.origin) for check in layer.checks.values()),
        has_image_of_option=of_option,
    )


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
        name = named.value.partition(":")[0]
        message = f"this job has no container '{name}' to continue"
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
        # as the destinations of mounts are written
        home = "/" + posixpath.normpath(home).lstrip("/")
        if over.home.is_mounted:
            target = "/root" if is_root else home
            add_mount(mounts, Mount("bind", home, target, (), over.home.origin), problems)
        else:
            mounts.pop(home, None)
    return replace(layer, env=env, mounts=mounts)


def _is_root(annotations: Mapping[str, Annotation]) -> bool:
    remap = annotations.get(ROOT_REMAP)
    return remap is not None and remap.value == "true"
