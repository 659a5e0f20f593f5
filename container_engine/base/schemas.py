"""Renders a JSON Schema of a format from the model that defines it. Pure."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from container_engine.base.model import END, Mergeable, Model, Written

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FIRST_VERSION = "0.1"


def render(model: type[Model]) -> str:
    """Return the schema as it is checked in: the same text for the same model.

    Every key has a `since` version; models may omit it for keys of the first version.
    """
    found = msgspec.json.schema(model, schema_hook=lambda _kind: {"type": "string"})
    parts = found["$defs"]
    top = parts.pop(model.__name__)
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
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return text.replace(json.dumps(END)[1:-1], "$")  # in JSON Schema it matches only at the end


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
