"""Compares two effective EDFs: lists values that only one of them has. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from container_engine.edf.history import displayed, quoted
from container_engine.edf.mounts import mount_text
from container_engine.secrecy import Secrecy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from container_engine.edf.deferred_text import Text
    from container_engine.edf.model import Edf, Origin


_OPEN = Secrecy(shows=True)


class _Value(NamedTuple):
    """A value with its key and origin; items of arrays share their array's key.

    `shown` is compared; `displayed` is printed, with secrets hidden.
    """

    key: str
    shown: str
    origin: Origin | None
    displayed: str


def differences(one: Edf, other: Edf, secrecy: Secrecy = _OPEN) -> list[str]:
    """Return lines sorted by key: `- …` for values only in `one`, `+ …` for those only in `other`.

    An array whose items differ only in order gets one line `~ …`, because the order is
    significant. Equal EDFs give no lines.
    """
    before, after = list(_values(one, secrecy)), list(_values(other, secrecy))
    lines: list[str] = []
    for key in sorted({value.key for value in (*before, *after)}):
        mine = [value for value in before if value.key == key]
        others = [value for value in after if value.key == key]
        lines += _compared(key, mine, others)
    return lines


def _compared(key: str, mine: Sequence[_Value], others: Sequence[_Value]) -> list[str]:
    left, right = [v.shown for v in mine], [v.shown for v in others]
    if left == right:
        return []
    removed = [value for value in mine if value.shown not in right]
    added = [value for value in others if value.shown not in left]
    lines = [_line("-", value) for value in removed] + [_line("+", value) for value in added]
    if not lines:
        return [f"~ {key}: the same entries in another order"]
    return lines


def _line(sign: str, value: _Value) -> str:
    where = f"  # {value.origin}" if value.origin else "  # default"
    return f"{sign} {value.key} = {value.displayed}{where}"


def _values(edf: Edf, secrecy: Secrecy) -> Iterator[_Value]:
    for key, value, origin in _pairs(edf):
        name = key[4:] if key.startswith("env.") else ""
        yield _Value(key, quoted(value), origin, displayed(name, value, secrecy))


def _pairs(edf: Edf) -> Iterator[tuple[str, bool | Text, Origin | None]]:
    for entry in edf.annotations:
        yield (f"annotations.{entry.key}", entry.value, entry.origin)
    for device in edf.devices:
        yield ("devices", device.name, device.origin)
    for variable in edf.env:
        yield (f"env.{variable.name}", variable.value, variable.origin)
    for mount in edf.mounts:
        yield ("mounts", mount_text(mount, lambda text: text), mount.origin)
    for line, origin in edf.startup:
        yield ("startup", line, origin)
    if edf.image is not None:
        yield ("image", edf.image, edf.image_origin)
    for name, origin in edf.above:
        yield ("image", name, origin)
    if edf.workdir is not None:
        yield ("workdir", edf.workdir, edf.workdir_origin)
    if edf.entrypoint is not None:
        yield ("entrypoint", edf.entrypoint, edf.entrypoint_origin)
    yield ("writable", edf.writable, edf.writable_origin)
