"""The difference of two effective EDFs: values that only one of them has. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from container_engine.edf.history import quoted
from container_engine.edf.mounts import mount_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from container_engine.edf.model import Edf, Origin
    from container_engine.edf.text import Text


class _Value(NamedTuple):
    """A value under its key and who says it; items of arrays share their array's key."""

    key: str
    shown: str
    origin: Origin | None


def differences(one: Edf, other: Edf) -> list[str]:
    """Lines by key: `- …` for what only `one` has, `+ …` for `other`; none if they are the same.

    An array whose items only change places gets a line of its own, for their order counts.
    """
    before, after = list(_values(one)), list(_values(other))
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
    return f"{sign} {value.key} = {value.shown}{where}"


def _values(edf: Edf) -> Iterator[_Value]:
    for entry in edf.annotations:
        yield _value(f"annotations.{entry.key}", entry.value, entry.origin)
    for device in edf.devices:
        yield _value("devices", device.name, device.origin)
    for variable in edf.env:
        yield _value(f"env.{variable.name}", variable.value, variable.origin)
    for mount in edf.mounts:
        yield _value("mounts", mount_text(mount, lambda text: text), mount.origin)
    for line, origin in edf.startup:
        yield _value("startup", line, origin)
    if edf.image is not None:
        yield _value("image", edf.image, edf.image_origin)
    if edf.workdir is not None:
        yield _value("workdir", edf.workdir, edf.workdir_origin)
    if edf.entrypoint is not None:
        yield _value("entrypoint", edf.entrypoint, edf.entrypoint_origin)
    yield _value("writable", edf.writable, edf.writable_origin)


def _value(key: str, value: bool | Text, origin: Origin | None) -> _Value:
    return _Value(key, quoted(value), origin)
