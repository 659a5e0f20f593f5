"""The values of one EDF file, checked and expanded, each with its origin, and their merge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from container_engine.edf.deferred_text import Text
from container_engine.edf.model import Annotation, Device, EnvEntry, Mount, Origin, Problem
from container_engine.edf.plain_keys import PLAIN

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
    from container_engine.edf.expand import shown

    target, source, hidden = map(shown, (winner.target, winner.source, loser.source))
    both = f"'{target}' is mounted from '{source}' here and from '{hidden}' in {loser.origin}"
    return winner.origin.warning("mounts", f"{both}; this one is used")
