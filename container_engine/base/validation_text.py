"""Find what does not fit a model in a document, and describe it to the user.

This runs only after a mistake. A document that fits needs only one call of msgspec; of one that
does not, msgspec would report only one fault.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeGuard,
    Union,
    get_args,
    get_origin,
)

import msgspec
from msgspec.structs import fields

from container_engine.base.did_you_mean import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator


Place = tuple[int | str, ...]


class Misfit(NamedTuple):
    """A fault; the dotted `key` is "" if the message is about the file or names the key itself."""

    key: str
    message: str
    example: str | None = None

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


class Fault(NamedTuple):
    """A fault of an administrator's file; `key` is "" if it does not concern a single key."""

    file: str
    message: str
    hint: str | None = None
    key: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.key, self.message) if part)


class Unfit(NamedTuple):
    """A value of the wrong type, a key that is missing, or one that its `owner` does not know.

    `wanted` is the type that the value must have. `example` is that of the nearest key with one.
    """

    place: Place
    value: object
    wanted: object
    owner: type[msgspec.Struct] | None = None
    is_missing: bool = False
    example: tuple[str, object] | None = None


def unfit(model: type[msgspec.Struct], value: object) -> Iterator[Unfit]:
    """Yield all that does not fit `model`, in the order of its keys; unknown keys come last."""
    yield from _unfit(model, value, ())


def misfits(model: type[msgspec.Struct], value: object, table: str) -> Iterator[Misfit]:
    """Yield what does not fit `model`, described; `table` is the format's word for a table."""
    for one in _unfit(model, value, ()):
        yield Misfit("", _unknown(one)) if one.owner else _described(one, table)


def from_text(kind: type[Any], value: object) -> object:
    """Return a value of one of the engine's own types, which documents hold as strings.

    Raise TypeError if it is not a string.
    """
    if isinstance(value, str):
        return kind.of_text(value)
    raise TypeError("must be a string")


# ---- where ---------------------------------------------------------------------------------------


def _unfit(
    kind: object, value: object, place: Place, example: tuple[str, object] | None = None
) -> Iterator[Unfit]:
    if _fits(kind, value):
        return
    found = False
    for one in _inside(_of_shape(kind, value), value, place, example):
        found = True
        yield one
    if not found:
        yield Unfit(place, value, kind, example=example)


def _fits(kind: object, value: object) -> bool:
    try:
        msgspec.convert(value, kind, dec_hook=from_text)
    except msgspec.ValidationError:
        return False
    return True


def _of_shape(kind: object, value: object) -> object:
    """Return the type; of a union, the alternative that is a table or an array as the value is."""
    kind = _bare(kind)
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    shape = (Mapping, msgspec.Struct) if isinstance(value, dict) else (list, tuple)
    for one in map(_bare, get_args(kind)):
        origin = get_origin(one) or one
        if isinstance(origin, type) and issubclass(origin, shape):
            return one
    return kind


def _inside(
    kind: object, value: object, place: Place, example: tuple[str, object] | None
) -> Iterator[Unfit]:
    if isinstance(value, dict):
        if _is_model(kind):
            yield from _keys(kind, value, place)
        elif get_origin(kind) is dict:
            name_kind, inner = get_args(kind)
            for name, one in value.items():
                yield from _unfit(name_kind, name, (*place, name), example)
                yield from _unfit(inner, one, (*place, name), example)
    elif isinstance(value, list | tuple) and get_origin(kind) in (list, tuple):
        for index, one in enumerate(value):
            yield from _unfit(get_args(kind)[0], one, (*place, index), example)


def _keys(model: type[msgspec.Struct], value: dict[str, object], place: Place) -> Iterator[Unfit]:
    known = {field.encode_name: field for field in fields(model)}
    for name, field in known.items():
        example = _example(name, field.type)
        if name in value:
            yield from _unfit(field.type, value[name], (*place, name), example)
        elif field.required:
            yield Unfit((*place, name), None, field.type, is_missing=True, example=example)
    if model.__struct_config__.forbid_unknown_fields:
        for name, one in value.items():
            if name not in known:
                yield Unfit((*place, name), one, None, model)


def _is_model(kind: object) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _bare(kind: object) -> object:
    return _bare(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def _example(name: str, kind: object) -> tuple[str, object] | None:
    metas = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    found = [meta.examples[0] for meta in metas if meta.examples]
    return (name, found[0]) if found else None


# ---- what ----------------------------------------------------------------------------------------


def _described(one: Unfit, table: str) -> Misfit:
    example = None
    if one.example:
        import json

        example = f"for example {one.example[0]} = {json.dumps(one.example[1], ensure_ascii=False)}"
    message = "is missing" if one.is_missing else _message(one.wanted, one.value, table)
    return Misfit(_dotted(one.place), message, example)


def _dotted(place: Place) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{part}"
    return text


def _unknown(one: Unfit) -> str:
    assert one.owner is not None
    name, known = str(one.place[-1]), _keys_of(one.owner)
    # a known key outside of its table is not a misspelt one
    inside = (f"{table}.{name}" for table, kind in known.items() if name in _keys_of(kind))
    meant = next(inside, None) or nearest(name, known)
    return f"unknown key '{_dotted(one.place)}'{did_you_mean(meant)}"


def _keys_of(kind: object) -> dict[str, object]:
    """Return the keys of a model with the types of their values; none for another type."""
    kind = _bare(kind)
    return {field.encode_name: field.type for field in fields(kind)} if _is_model(kind) else {}


def _message(kind: object, value: object, table: str) -> str:
    bare = _bare(kind)
    if get_origin(bare) is Literal:
        return f"must be {_listed([repr(one) for one in get_args(bare)])}"
    if get_origin(bare) in (Union, types.UnionType):
        wanted = [one for one in get_args(bare) if one is not types.NoneType]
        if len(wanted) == 1:
            return _message(wanted[0], value, table)
        return f"must be {_listed([_noun(_bare(one), table) for one in wanted])}"
    return _limits(kind, value) or f"must be {_noun(bare, table)}"


def _limits(kind: object, value: object) -> str:
    """Return which limit a value of the right type breaks; "" if none."""
    while get_origin(kind) is Annotated:
        kind, *metas = get_args(kind)
        for meta in metas:
            if meta.pattern is not None and isinstance(value, str):
                return f"{value!r} has an invalid form"  # the pattern would not help the user
            if isinstance(value, _NUMBERS.get(_bare(kind), ())) and not isinstance(value, bool):
                for limit, words in (("gt", "greater than"), ("ge", "at least")):
                    if getattr(meta, limit) is not None:
                        return f"must be {words} {getattr(meta, limit)}"
            if meta.min_length and isinstance(value, list | tuple):
                return f"must have at least {meta.min_length} item"
    return ""


_NUMBERS: dict[object, tuple[type, ...]] = {int: (int,), float: (int, float)}
_NOUNS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"} | {
    list: "an array",
    tuple: "an array",
}


def _noun(kind: Any, table: str) -> str:  # noqa: ANN401  # any type
    origin = get_origin(kind) or kind
    if origin is dict or _is_model(origin):
        return table
    return _NOUNS.get(origin, "a string")


def _listed(words: list[str]) -> str:
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)
