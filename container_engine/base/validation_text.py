"""Words for what pydantic finds wrong with a document: where, and what a value must be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union, get_args, get_origin

from container_engine.base.did_you_mean import did_you_mean, nearest

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

Place = tuple[int | str, ...]

# By the type of an error: what the value must be, with the error's context. Own types are strings.
_TABLES = {"dict_type", "model_type", "dataclass_type", "dataclass_exact_type"}
_WANTED = {
    "bool_type": "true or false",
    "float_type": "a number",
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int_type": "a whole number",
    "list_type": "an array",
    "literal_error": "{expected}",
    "tuple_type": "an array",
}
_ABSENT, _UNKNOWN = "missing", "extra_forbidden"
_OTHERWISE = {
    _ABSENT: "is missing",
    "string_pattern_mismatch": "{input!r} has an invalid form",  # the pattern would not help
    "too_short": "must have at least {min_length} item",
}


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
    """A value that does not fit, and the errors of all types that it could have had."""

    place: Place
    value: object
    errors: Sequence[ErrorDetails]


class MisfitError(ValueError):
    """A document that does not fit its model, or is none at all; its text is the first fault."""

    def __init__(self, misfits: Iterable[Misfit], unfit: Sequence[Unfit] = ()) -> None:
        """Make the error of what does not fit, described for the user and as values."""
        self.misfits, self.unfit = tuple(misfits), unfit
        super().__init__(self.misfits)

    def __str__(self) -> str:
        return str(self.misfits[0])


def found_in(error: ValidationError, document: object) -> list[Unfit]:
    """Return what does not fit, in the order of the model's keys; unknown keys come last.

    A union has an error for each of its types: the one that was meant is the one that fails deeper
    inside.
    """
    found: dict[tuple[Place, bool], list[ErrorDetails]] = {}
    for one in error.errors(include_url=False):
        found.setdefault((_place(one, document), one["loc"][-1:] == ("[key]",)), []).append(one)
    deeper = {place[:end] for place, _is_key in found for end in range(len(place))}
    return [
        Unfit(place, errors[0]["input"], errors)
        for (place, _is_key), errors in found.items()
        if place not in deeper
    ]


def _place(one: ErrorDetails, document: Any) -> Place:  # noqa: ANN401  # any document
    """Return the keys and indexes that lead to an error, without the names of a union's types."""
    place: list[int | str] = []
    for part in one["loc"]:
        is_key = isinstance(document, dict) and part in document
        if is_key or (isinstance(document, list | tuple) and isinstance(part, int)):
            document = document[part]
        elif one["type"] != _ABSENT or part != one["loc"][-1]:
            continue
        place.append(part)
    return tuple(place)


def misfits(model: type[BaseModel], unfit: Sequence[Unfit], table: str) -> Iterator[Misfit]:
    """Yield what does not fit `model`, described; `table` is the format's word for a table."""
    for place, _value, errors in unfit:
        if errors[0]["type"] == _UNKNOWN:
            yield Misfit("", _unknown(model, place))
        else:
            yield Misfit(_dotted(place), _message(errors, table), _example(model, place))


def _message(errors: Sequence[ErrorDetails], table: str) -> str:
    first = errors[0]
    if first["type"] in _OTHERWISE:
        return _OTHERWISE[first["type"]].format(input=first["input"], **first.get("ctx", {}))
    wanted = [
        table
        if one["type"] in _TABLES
        else _WANTED.get(one["type"], "a string").format(**one.get("ctx", {}))
        for one in errors
    ]
    return f"must be {_listed(wanted)}"


def _unknown(model: type[BaseModel], place: Place) -> str:
    name, known = str(place[-1]), _fields(_inside(model, place[:-1]))
    # a known key outside of its table is not a misspelt one
    inside = (f"{key}.{name}" for key, one in known.items() if name in _fields(one.annotation))
    meant = next(inside, None) or nearest(name, known)
    return f"unknown key '{_dotted(place)}'{did_you_mean(meant)}"


def _example(model: type[BaseModel], place: Place) -> str | None:
    """Return an example of the nearest key with one."""
    for end in range(len(place), 0, -1):
        name = str(place[end - 1])
        field = _fields(_inside(model, place[: end - 1])).get(name)
        if field is not None:
            if not field.examples:
                return None
            import json

            return f"for example {name} = {json.dumps(field.examples[0], ensure_ascii=False)}"
    return None


def _inside(kind: object, place: Place) -> object:
    """Return the type of the value at `place` of a value of the type `kind`, None if unknown."""
    for part in place:
        kind = _part(kind, part)
    return kind


def _part(kind: object, part: int | str) -> object:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _part(arguments[0], part)
    if origin in (Union, UnionType):
        return next(filter(None, (_part(one, part) for one in arguments)), None)
    if origin in (list, tuple):
        return arguments[0]
    if origin is dict:
        return arguments[1]
    field = _fields(kind).get(str(part))
    return None if field is None else field.annotation


def _fields(kind: object) -> Mapping[str, FieldInfo]:
    """Return the fields of a model by their keys; none for another type."""
    fields: Mapping[str, FieldInfo] = getattr(kind, "model_fields", {})
    return {field.alias or name: field for name, field in fields.items()}


def _dotted(place: Place) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{part}"
    return text


def _listed(words: list[str]) -> str:
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)
