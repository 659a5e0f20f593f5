"""The base of all documents: frozen models of pydantic, which JSON or TOML is checked against.

A model's types are the one source of its checks, of its JSON Schema and of its reference page.
Validators are built when they are first used: most commands need few of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticCustomError, from_json

from container_engine.base.text_layout import did_you_mean, nearest

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic.json_schema import CoreSchemaOrField  # type: ignore[attr-defined]
    from pydantic_core import ErrorDetails, InitErrorDetails
    from pydantic_core.core_schema import DictSchema, WithDefaultSchema

T = TypeVar("T")
# the list of a document is one as well; what is inside stays strict
Array: TypeAlias = Annotated[tuple[T, ...], Strict(False)]
# of a dataclass in a document, for which a table stands
PART = ConfigDict(extra="forbid")


def about(description: str, **more: Any) -> Any:  # noqa: ANN401  # as Field has them
    """Return the Field of a key: its description for the schema, `examples`, limits, an alias."""
    return Field(description=description, **more)


class Brief(type):
    """A class whose `help` leaves out what it has from other packages, such as pydantic."""

    def __dir__(cls) -> list[str]:
        own = [one for one in cls.__mro__ if one.__module__.startswith(__package__.split(".")[0])]
        names = {name for one in own for name in vars(one)}
        return [name for name in names if not name.startswith(("_", "model_"))]


if TYPE_CHECKING:  # the types of a model's arguments would not survive a metaclass
    _Base: TypeAlias = BaseModel
else:

    class _BriefModel(Brief, type(BaseModel)):
        pass

    class _Base(BaseModel, metaclass=_BriefModel):
        pass


class Model(_Base):
    """A document, or a part of one, in which unknown keys are errors.

    The engine's own code names fields by their names, documents by their aliases.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        defer_build=True,
        validate_by_name=True,
        validate_by_alias=True,
    )

    @classmethod
    def of(cls, value: object, kind: str = "a table") -> Self:
        """Return the model of a parsed document. Raise MisfitError, which calls a table `kind`."""
        try:
            return cls.model_validate(value, by_alias=True, by_name=False)
        except ValidationError as error:
            unfit = found_in(error, value)
        raise MisfitError(misfits(cls, unfit, kind), unfit)

    @classmethod
    def of_json(cls, text: bytes | str) -> Self:
        """Return the model of a JSON document. Raise MisfitError, also if it is not valid JSON."""
        try:
            value = from_json(text, allow_inf_nan=False)
        except ValueError as error:
            raise MisfitError([Misfit("", f"not valid JSON: {error}")]) from None
        return cls.of(value, "an object")

    def as_dict(self) -> dict[str, Any]:
        """Return the document: dictionaries, arrays and scalars under the keys of its format."""
        return self.model_dump(by_alias=True)


class Excerpt(Model):
    """A document of which only some keys are used here; all other keys are ignored."""

    model_config = ConfigDict(extra="ignore")


class Written(Model):
    """A TOML file that people write. It cannot hold null: None stands for an absent key."""


class Mergeable(Written):
    """A table that another file may change key by key, so that no file needs all its keys."""


# ---- what does not fit ------------------------------------------------------------------------

Place = tuple[int | str, ...]

# By the type of an error: what the value must be, with the error's context. Own types are strings.
_TABLES = {"dict_type", "model_type", "dataclass_type", "dataclass_exact_type"}
_WANTED = {
    "bool_type": "true or false",
    "float_type": "a number",
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int_type": "a whole number",
    "less_than_equal": "at most {le:g}",
    "list_type": "an array",
    "literal_error": "{expected}",
    "tuple_type": "an array",
}
_ABSENT, _UNKNOWN = "missing", "extra_forbidden"
_OTHERWISE = {
    _ABSENT: "is missing",
    "string_pattern_mismatch": "{input!r} has an invalid form",  # the pattern would not help
    "union_tag_invalid": "the kind must be {expected_tags}",
    "union_tag_not_found": "the kind is missing",
    "string_too_short": "must not be empty",
    "too_short": "must have at least {min_length} item",
}


class Misfit(NamedTuple):
    """A fault; the dotted `key` is "" if the message is about the file or names the key itself."""

    key: str
    message: str
    example: str | None = None

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


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


def told(model: type[BaseModel], error: ValidationError, value: object) -> ValidationError:
    """Return pydantic's error with the engine's words for unknown keys."""
    details: list[InitErrorDetails] = []
    for one in error.errors(include_url=False):
        kind: str | PydanticCustomError = one["type"]
        if kind == _UNKNOWN:
            words = {"words": _unknown(model, _place(one, value))}
            kind = PydanticCustomError(_UNKNOWN, "{words}", words)
        details.append(
            {"type": kind, "loc": one["loc"], "input": one["input"], "ctx": one.get("ctx", {})}
        )
    return ValidationError.from_exception_data(error.title, details)


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
    """Return the fields of a model, or of the models of a union, by their keys."""
    if get_origin(kind) is Annotated:
        return _fields(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return {name: one for part in get_args(kind) for name, one in _fields(part).items()}
    fields: Mapping[str, FieldInfo] = getattr(kind, "model_fields", {})
    return {field.alias or name: field for name, field in fields.items()}


def _dotted(place: Place) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{part}"
    return text


def _listed(words: list[str]) -> str:
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


# ---- schemas ----------------------------------------------------------------------------------

DIALECT = GenerateJsonSchema.schema_dialect
FIRST_VERSION = "0.1"


class _Schema(GenerateJsonSchema):
    """A schema whose keys have all their defaults, and no titles, which would repeat the names."""

    def field_title_should_be_set(self, schema: CoreSchemaOrField) -> bool:  # noqa: ARG002
        return False

    def dict_schema(self, schema: DictSchema) -> dict[str, Any]:
        """Have names of another form refused, about which `patternProperties` says nothing."""
        found = super().dict_schema(schema)
        for pattern, value in found.pop("patternProperties", {}).items():
            found |= {"propertyNames": {"pattern": pattern}, "additionalProperties": value}
        return found

    def get_default_value(self, schema: WithDefaultSchema) -> object:
        make = schema.get("default_factory")
        return make() if make else super().get_default_value(schema)  # type: ignore[call-arg]


def schema_text(model: type[Model]) -> str:
    """Return the JSON Schema of a model as it is checked in: the same text for the same model.

    Every key has a `since` version; models may omit it for keys of the first version.
    """
    top = model.model_json_schema(schema_generator=_Schema)
    parts = top.pop("$defs", {})
    partial = {kind.__name__ for kind in _below(Mergeable)} if issubclass(model, Mergeable) else ()
    for name, part in ((model.__name__, top), *parts.items()):
        for key in part.get("properties", {}).values():
            key.setdefault("since", FIRST_VERSION)
            if issubclass(model, Written):
                _drop_null(key)
        if name in partial:
            part.pop("required", None)
    top["title"] = getattr(model, "TITLE", top["title"])
    schema = {"$schema": DIALECT, **top, **({"$defs": parts} if parts else {})}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _drop_null(key: dict[str, Any]) -> None:
    """Remove null, which stands for an absent key: no such file can contain it."""
    if key.get("default", "") is None:
        del key["default"]
    others = [one for one in key.get("anyOf", ()) if one != {"type": "null"}]
    if len(others) == 1:
        del key["anyOf"]
        key.update(others[0])
    elif others:
        key["anyOf"] = others


def _below(kind: type[Model]) -> set[type[Model]]:
    return {kind}.union(*map(_below, kind.__subclasses__()))
