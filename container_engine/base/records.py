"""Read and write the engine's own records: named tuples, as JSON objects of one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_type_hints

_Record = TypeVar("_Record")
# how JSON holds a field of each type; a boolean is no number
_HELD: dict[object, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    float: (int, float),
    int | None: (int, NoneType),
    str | None: (str, NoneType),
    tuple[str, ...]: (list,),
}


def from_json(kind: Callable[..., _Record], text: bytes) -> _Record:
    """Return the record in `text`; further keys do not matter. Raise ValueError."""
    try:
        return from_table(kind, json.loads(text))
    except RecursionError as error:
        raise ValueError(str(error)) from None


def from_table(kind: Callable[..., _Record], found: Mapping[str, Any]) -> _Record:
    """Return the record of a table's values; further keys do not matter. Raise ValueError."""
    hints = get_type_hints(kind)
    try:
        return kind(**{name: _value(found[name], hints[name]) for name in hints if name in found})
    except TypeError as error:
        raise ValueError(str(error)) from None


def _value(value: Any, wanted: object) -> Any:  # noqa: ANN401  # of any field
    if type(value) not in _HELD[wanted]:
        raise TypeError(f"{value!r} is not {wanted}")
    if not isinstance(value, list):
        return value
    return tuple(_value(one, str) for one in value)


def to_json(record: NamedTuple) -> bytes:
    """Return the record as one line; bytes that are not UTF-8 (PEP 383) are kept as escapes."""
    text = json.dumps(record._asdict(), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")
