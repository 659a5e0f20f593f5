"""The keys of an EDF and their types: the source of every check and of the JSON Schema.

This is a pydantic model because the same class checks what users write and describes it to
editors. A new key needs `json_schema_extra={"since": "VERSION"}`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from typing_extensions import TypeAliasType


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _leave_inside(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    """Skip tables: `flatten` checks nested values, with better messages."""
    return value if isinstance(value, dict) else validate(value)


# TOML has no null: None stands for an absent key
Word = Annotated[str | None, WithJsonSchema({"type": "string"})]
Switch = Annotated[bool | None, WithJsonSchema({"type": "boolean"})]
Strings = list[str]
OneOrMore = Annotated[
    Strings,
    BeforeValidator(_one_or_more),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Images = Annotated[
    Strings | None,
    BeforeValidator(_one_or_more),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        }
    ),
]
AnnotationValue = TypeAliasType(
    "AnnotationValue", "str | bool | int | float | dict[str, AnnotationValue]"
)
Annotations = Annotated[dict[str, AnnotationValue], WrapValidator(_leave_inside)]


class Document(BaseModel):
    """One file as the user wrote it: neither merged nor expanded."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        title="Environment Definition File",
    )

    base_environment: OneOrMore = Field(
        default=[],
        description="Names or paths of the EDFs to inherit from, in order; later ones win.",
        examples=["common", ["common", "./ml.toml"]],
    )
    image: Images = Field(
        default=None,
        description="Container image: a registry reference or the path of a SquashFS file. "
        "Of several images the first is the base, and each later one goes above it. "
        "The empty string means: on purpose no container. May come from a base environment.",
        examples=[
            "ubuntu:24.04",
            "nvcr.io#nvidia/pytorch:24.05-py3",
            ["${SCRATCH}/x.sqsh", "./mine.sqsh"],
        ],
    )
    workdir: Word = Field(
        default=None,
        description="Initial directory in the container; by default the image's.",
        examples=["/workspace"],
    )
    entrypoint: Switch = Field(
        default=None,
        description="Whether the image's ENTRYPOINT runs before tasks; absent: the site decides.",
        examples=[False],
    )
    writable: Switch = Field(
        default=None,
        description="Whether the container's file system can be written; true if absent.",
        examples=[False],
    )
    mounts: Strings = Field(
        default=[],
        description="SOURCE:DESTINATION[:FLAGS], or PATH alone for the same path on both sides; "
        "FILE:DESTINATION:sqsh for a SquashFS file; tmpfs:DESTINATION[:size=…+mode=…].",
        examples=[["/scratch", "${HOME}/data:/data:ro", "tmpfs:/tmp:size=1g"]],
    )
    devices: Strings = Field(
        default=[],
        description="CDI names or paths of devices.",
        examples=[["nvidia.com/gpu=all", "/dev/gdrdrv"]],
    )
    env: dict[str, str] = Field(
        default={},
        description='Environment variables for the container; "" unsets one, whatever its source.',
        examples=[{"OMP_NUM_THREADS": "8", "PATH": "/opt/mine/bin:${image:PATH}"}],
    )
    annotations: Annotations = Field(
        default={},
        description="Annotations for hooks and the OCI runtime: nested tables or dotted keys.",
        examples=[{"com.hooks.cxi.enabled": "true"}],
    )
    startup: Strings = Field(
        default=[],
        description="Shell lines that run once per node inside the container, before any task.",
        examples=[["source /opt/venv/bin/activate"]],
    )


KEYS = tuple(Document.model_fields)
