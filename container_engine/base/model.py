"""The base of all documents: frozen models of pydantic, which JSON or TOML is checked against.

A model's types are the one source of its checks, of its JSON Schema and of its reference page.
Validators are built when they are first used: most commands need few of them.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Annotated, Any, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic_core import from_json

from container_engine.base.validation_text import Misfit, MisfitError, found_in, misfits

# to ask all packages for plugins takes pydantic a tenth of its import, and none has a say here
sys.modules["pydantic.plugin._loader"] = SimpleNamespace(get_plugins=tuple)  # type: ignore[assignment]

T = TypeVar("T")
# the list of a document is one as well; what is inside stays strict
Array: TypeAlias = Annotated[tuple[T, ...], Strict(False)]
# of a dataclass in a document, for which a table stands
PART = ConfigDict(extra="forbid")


def about(description: str, **more: Any) -> Any:  # noqa: ANN401  # as Field has them
    """Return the Field of a key: its description for the schema, `examples`, limits, an alias."""
    return Field(description=description, **more)


class Model(BaseModel):
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
    def of(cls, value: object) -> Self:
        """Return the model of a parsed document. Raise MisfitError."""
        return cls._checked(value, "a table")

    @classmethod
    def of_json(cls, text: bytes | str) -> Self:
        """Return the model of a JSON document. Raise MisfitError, also if it is not valid JSON."""
        try:
            value = from_json(text, allow_inf_nan=False)
        except ValueError as error:
            raise MisfitError([Misfit("", f"not valid JSON: {error}")]) from None
        return cls._checked(value, "an object")

    @classmethod
    def _checked(cls, value: object, table: str) -> Self:
        try:
            return cls.model_validate(value, by_alias=True, by_name=False)
        except ValidationError as error:
            unfit = found_in(error, value)
        raise MisfitError(misfits(cls, unfit, table), unfit)

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
