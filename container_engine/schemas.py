"""The JSON Schemas of our formats, generated from the models that define them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import BaseModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def render(model: type[BaseModel]) -> str:
    """The schema as it is checked in: the same text for the same model."""
    schema = {"$schema": DIALECT, **model.model_json_schema(by_alias=True)}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def write(models: Mapping[str, type[BaseModel]], arguments: Sequence[str]) -> None:
    """Writes a file per model into the directory that is the only argument, or `edf_schemas`."""
    directory = Path(*(arguments or ["edf_schemas"]))
    for name, model in models.items():
        (directory / name).write_text(render(model), encoding="utf-8")
