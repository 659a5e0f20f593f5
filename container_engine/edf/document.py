"""The keys of an EDF and their types: the source of every check and of the JSON Schema.

A new key needs `json_schema_extra={"since": "VERSION"}`, its row in PLAIN if it has one value, and
its field in `Layer` and `Edf`: `tests/unit/edf/test_plain_keys.py` says what is missing.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from container_engine.base.model import Written, about
from container_engine.base.run_check import ListedCheck

Strings = list[str]
# for the schema only: the engine's own message for an empty array has more to say
Stack = Annotated[Strings, Field(json_schema_extra={"minItems": 1})]
# Only its type is checked here: `flatten` checks the values, with better messages. In the schema:
_LEAVES = [{"type": kind} for kind in ("string", "boolean", "integer", "number")]
_SELF = {"$ref": "#/properties/annotations/additionalProperties"}
_NESTED = {"anyOf": [*_LEAVES, {"type": "object", "additionalProperties": _SELF}]}


class Document(Written):
    """One file as the user wrote it: neither merged nor expanded."""

    TITLE: ClassVar[str] = "Environment Definition File"

    base_environment: Annotated[
        str | Strings,
        about(
            "Names or paths of the EDFs to inherit from, in order; later ones win.",
            examples=["common", ["common", "./ml.toml"]],
        ),
    ] = Field(default_factory=list)
    description: Annotated[
        str | None,
        about(
            "What the environment is for, in a line; ce list shows it.",
            examples=["PyTorch with the group's packages"],
            json_schema_extra={"since": "0.1.0"},
        ),
    ] = None
    image: Annotated[
        str | Stack | None,
        about(
            "Container image: a registry reference or the path of a SquashFS file. Of several "
            "images the first is the base, and each later one goes above it. The empty string "
            "means: on purpose no container. May come from a base environment.",
            examples=[
                "ubuntu:24.04",
                "nvcr.io#nvidia/pytorch:24.05-py3",
                ["${SCRATCH}/x.sqsh", "./mine.sqsh"],
            ],
        ),
    ] = None
    workdir: Annotated[
        str | None,
        about(
            "Initial directory in the container; by default the image's.", examples=["/workspace"]
        ),
    ] = None
    entrypoint: Annotated[
        bool | None,
        about(
            "Whether the image's ENTRYPOINT runs before tasks; absent: the site decides.",
            examples=[False],
        ),
    ] = None
    writable: Annotated[
        bool | None,
        about(
            "Whether the container's file system can be written; true if absent.", examples=[False]
        ),
    ] = None
    mounts: Annotated[
        Strings,
        about(
            "SOURCE:DESTINATION[:FLAGS], or PATH alone for the same path on both sides; "
            "FILE:DESTINATION:sqsh for a SquashFS file; tmpfs:DESTINATION[:size=…+mode=…].",
            examples=[["/scratch", "${HOME}/data:/data:ro", "tmpfs:/tmp:size=1g"]],
        ),
    ] = Field(default_factory=list)
    devices: Annotated[
        Strings,
        about("CDI names or paths of devices.", examples=[["nvidia.com/gpu=all", "/dev/gdrdrv"]]),
    ] = Field(default_factory=list)
    env: Annotated[
        dict[str, str],
        about(
            'Environment variables for the container; "" unsets one, whatever its source.',
            examples=[{"OMP_NUM_THREADS": "8", "PATH": "/opt/mine/bin:${image:PATH}"}],
        ),
    ] = Field(default_factory=dict)
    annotations: Annotated[
        dict[str, Any],
        about(
            "Annotations for hooks and the OCI runtime: nested tables or dotted keys.",
            examples=[{"com.hooks.cxi.enabled": "true"}],
        ),
    ] = Field(default_factory=dict)
    startup: Annotated[
        Strings,
        about(
            "Shell lines that run once per node inside the container, before any task.",
            examples=[["source /opt/venv/bin/activate"]],
        ),
    ] = Field(default_factory=list)

    checks: Annotated[
        list[ListedCheck],
        about(
            "Programs that must pass before the first task, each a table [[checks]].",
            examples=[[{"name": "gpus", "command": ["nvidia-smi", "-L"], "severity": "fail"}]],
            json_schema_extra={"since": "0.1.0"},
        ),
    ] = Field(default_factory=list)

    @classmethod
    def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the schema, with a reference that pydantic has no name for."""
        schema = super().model_json_schema(*arguments, **options)
        schema["properties"]["annotations"]["additionalProperties"] = _NESTED
        return schema

    @property
    def images(self) -> Strings | None:
        """Return the images, the base first; None if the file does not have the key."""
        return [self.image] if isinstance(self.image, str) else self.image

    @property
    def bases(self) -> Strings:
        """Return the names or paths of the EDFs to inherit from, in order."""
        base = self.base_environment
        return [base] if isinstance(base, str) else base


KEYS = tuple(Document.model_fields)

# The keys that have one value, of which that of the upper file wins, and how it is read: true or
# false, a path in the container, or text that has no deferred part. Files are read, merged,
# explained and rendered by this table.
PLAIN: dict[str, Literal["switch", "directory", "text"]] = {
    "description": "text",
    "entrypoint": "switch",
    "workdir": "directory",
    "writable": "switch",
}
