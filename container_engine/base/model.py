"""The base of all models: frozen structures that are read from JSON or TOML and checked.

A model's types are the one source of its checks, of its JSON Schema and of its reference page. Only
documents are checked at run time; what the engine's own code constructs, the type checker checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, dataclass_transform

import msgspec

from container_engine.base.validation_text import Misfit, from_text, misfits, unfit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from container_engine.base.validation_text import Unfit

# Python's `$` also matches before a line break at the end; JSON Schema's does not
END = r"$(?!\n)"


def about(description: str, **limits: Any) -> msgspec.Meta:  # noqa: ANN401  # as Meta has them
    """Return the description of a key for its schema, with `examples` and limits of its values."""
    return msgspec.Meta(description=description, **limits)


class _Kind(msgspec.StructMeta):
    """Make all fields keyword-only, so that one without a default may follow one with a default."""

    def __new__(cls, *parts: Any, kw_only: bool = True, **options: Any) -> type:  # noqa: ANN401
        return super().__new__(cls, *parts, kw_only=kw_only, **options)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Model(msgspec.Struct, metaclass=_Kind, frozen=True, forbid_unknown_fields=True):
    """A document, or a part of one, in which unknown keys are errors."""

    @classmethod
    def of(cls, value: object) -> Self:
        """Return the model of a parsed document. Raise MisfitError."""
        try:
            return msgspec.convert(value, cls, dec_hook=from_text)
        except msgspec.ValidationError:
            raise MisfitError(cls, value, "a table") from None

    @classmethod
    def of_json(cls, text: bytes | str) -> Self:
        """Return the model of a JSON document. Raise MisfitError, also if it is not valid JSON."""
        try:
            try:
                return msgspec.json.decode(text, type=cls, dec_hook=from_text)
            except msgspec.ValidationError:
                raise MisfitError(cls, msgspec.json.decode(text), "an object") from None
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise MisfitError(cls, msgspec.UNSET, f"not valid JSON: {error}") from None

    def as_dict(self) -> dict[str, Any]:
        """Return the document: dictionaries, arrays and scalars under the keys of its format."""
        document: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return document

    def as_json(self) -> bytes:
        """Return the document as JSON in one line. Raise UnicodeEncodeError for a surrogate."""
        return msgspec.json.encode(self, enc_hook=str)


class Excerpt(Model, forbid_unknown_fields=False):
    """A document of which only some keys are used here; all other keys are ignored."""


class Written(Model):
    """A TOML file that people write. It cannot hold null: None stands for an absent key."""


class Mergeable(Written):
    """A table that another file may change key by key, so that no file needs all its keys."""


class MisfitError(ValueError):
    """A document that does not fit its model, or is none at all; its text is the first fault."""

    def __init__(self, model: type[Model], value: object, said: str) -> None:
        """Make the error of `value`; `said` is its format's word for a table.

        If the document could not be parsed, `value` is UNSET and `said` is the reason.
        """
        self._model, self._value, self._said = model, value, said
        super().__init__(model, value, said)

    def __str__(self) -> str:
        return str(next(self.misfits))

    @property
    def unfit(self) -> Iterator[Unfit]:
        """Yield every value that does not fit, in the order of the model's keys."""
        return unfit(self._model, self._value)

    @property
    def misfits(self) -> Iterator[Misfit]:
        """Yield a description for the user of each value that does not fit."""
        if self._value is msgspec.UNSET:
            return iter([Misfit("", self._said)])
        return misfits(self._model, self._value, self._said)
