"""Describe to the user why a file does not fit the model of its format."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from container_engine.did_you_mean import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

_WORDS = {
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "model_type": "must be a table",
    "string_type": "must be a string",
    "tuple_type": "must be an array",
}
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


def misfits(model: type[BaseModel], error: ValidationError) -> Iterator[Misfit]:
    """Yield every fault that `model` found, in the order of its fields."""
    for problem in error.errors(include_url=False):
        place = problem["loc"]
        if problem["type"] == "extra_forbidden":
            yield Misfit("", _unknown(model, place))
        else:
            yield Misfit(_dotted(place), _message(problem), _example(model, place))


def first_misfit(model: type[BaseModel], error: ValidationError) -> Misfit:
    """Return the first fault only, which is enough for a file that programs write."""
    return next(misfits(model, error))


def _message(problem: ErrorDetails) -> str:
    if problem["type"] == "string_pattern_mismatch":
        return f"{problem['input']!r} has an invalid form"  # the pattern would not help the user
    if problem["type"] == "missing":
        return "is missing"
    message = problem["msg"].replace("Input should", "must", 1)
    known = _WORDS.get(problem["type"])
    if known is not None and message != "must be an object":  # JSON's word for a table
        return known
    return f"{message[:1].lower()}{message[1:]}"


def _dotted(place: Place) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{part}"
    return text


def _unknown(model: type[BaseModel], place: Place) -> str:
    owner, name = _owner(model, place), str(place[-1])
    known = [field.alias or key for key, field in owner.model_fields.items()] if owner else []
    meant = nearest(name, known)
    suggestion = f", did you mean '{meant}'?" if meant else ""
    return f"unknown key '{_dotted(place)}'{suggestion}"


def _example(model: type[BaseModel], place: Place) -> str | None:
    """Return an example of the key, or None if its model has none."""
    import json  # needed only after a mistake

    while place and isinstance(place[-1], int):
        place = place[:-1]  # the example is of the whole array
    owner = _owner(model, place)
    field = _field(owner, place[-1]) if owner and place else None
    if field is None or not field.examples:
        return None
    shown = json.dumps(field.examples[0], ensure_ascii=False)
    return f"for example {place[-1]} = {shown}"


def _owner(model: type[BaseModel], place: Place) -> type[BaseModel] | None:
    """Return the model that has the last part of `place` as a key, or None if there is none."""
    parts = iter(place[:-1])
    for part in parts:
        field = _field(model, part)
        inner = _model_in(field.annotation) if field else None
        if field is None or inner is None:
            return None
        if get_origin(field.annotation) in (dict, tuple):
            next(parts, None)  # a name that the user chose, or an index
        model = inner
    return model


def _field(model: type[BaseModel], name: int | str) -> FieldInfo | None:
    for key, field in model.model_fields.items():
        if name in (key, field.alias):
            return field
    return None


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
