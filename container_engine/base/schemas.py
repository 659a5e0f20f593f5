"""Renders a JSON Schema of a format from the model that defines it. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema

from container_engine.base.model import Mergeable, Model, Written

if TYPE_CHECKING:
    from pydantic.json_schema import CoreSchemaOrField  # type: ignore[attr-defined]
    from pydantic_core.core_schema import DictSchema, WithDefaultSchema

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


def render(model: type[Model]) -> str:
    """Return the schema as it is checked in: the same text for the same model.

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
