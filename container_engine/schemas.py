"""Renders a JSON Schema of a format from the model that defines it. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FIRST_VERSION = "0.1"


def render(model: type[BaseModel]) -> str:
    """Return the schema as it is checked in: the same text for the same model.

    Every key has a `since` version; models may omit it for keys of the first version.
    """
    schema = {"$schema": DIALECT, **model.model_json_schema(by_alias=True)}
    for part in (schema, *schema.get("$defs", {}).values()):
        for key in part.get("properties", {}).values():
            key.setdefault("since", FIRST_VERSION)
            if "type" in key and key.get("default", "") is None:
                del key["default"]  # None stands for an absent key; no file can contain it
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
