"""The effective EDF: all files merged, all variables expanded, every value with its origin.

Frozen dataclasses, not pydantic models: these objects are made by our own code from values that the
document model (`document.py`) has already checked, so a second validation would only cost time. A
plan holds the mounts and devices as they are, therefore they have descriptions for its schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from container_engine.edf.text import Text

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

__all__ = [
    "Annotation",
    "Device",
    "Edf",
    "EnvEntry",
    "Loaded",
    "Mount",
    "MountKind",
    "Origin",
    "Problem",
    "Severity",
    "Text",
]

MountKind: TypeAlias = Literal["bind", "squashfs", "tmpfs"]
Severity: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The place where a value was written: an absolute path and a line, counted from 1.

    A value of the command line has the name of its option and line 0.
    """

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Return the schema for a plan, whose JSON has the origin as text."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, Origin) else Origin(value, 0),
            serialization=core_schema.to_string_ser_schema(when_used="always"),
            json_schema_input_schema=core_schema.str_schema(),
        )


_FROM = "file:line that asks for it, or words where no file does"
_STRICT = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Mount:
    """Sources and targets are absolute once their variables are known."""

    # A target without deferred parts is normalised: no "..", no doubled or trailing slash.
    kind: MountKind = field(metadata={"description": "what is mounted"})
    source: Text = field(metadata={"description": "a path of the host; of a tmpfs the word tmpfs"})
    target: Text = field(metadata={"description": "a path in the container"})
    options: tuple[str, ...] = field(metadata={"description": "flags, in the order of writing"})
    origin: Origin = field(metadata={"description": _FROM, "alias": "from"})

    __pydantic_config__: ClassVar = _STRICT


@dataclass(frozen=True, slots=True)
class Device:
    """A CDI name or the path of a device node."""

    name: Text = field(metadata={"description": "vendor.com/class=name, or a path of the host"})
    is_cdi: bool = field(metadata={"description": "whether it is a CDI name", "alias": "cdi"})
    origin: Origin = field(metadata={"description": _FROM, "alias": "from"})

    __pydantic_config__: ClassVar = _STRICT


@dataclass(frozen=True, slots=True)
class EnvEntry:
    """One variable for the container; the value "" unsets it, whatever its source."""

    name: str
    value: Text
    origin: Origin


@dataclass(frozen=True, slots=True)
class Annotation:
    """One annotation under its flat, dotted key."""

    key: str
    value: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Edf:
    """The content of the user's files that a launch needs.

    `name` is the name that the user gave; `files` are absolute, in the order of evaluation, the
    user's own last; an image alone has none. `image` is None if no file has the key, and "" if a
    file asks for no container at all; `above` are the images above it, the highest last.
    `env` and `annotations` are sorted, the others are in the
    order of evaluation.
    """

    name: str
    files: tuple[str, ...]
    image: str | None = None
    image_origin: Origin | None = None
    above: tuple[tuple[str, Origin], ...] = ()
    workdir: Text | None = None
    workdir_origin: Origin | None = None
    writable: bool = True
    writable_origin: Origin | None = None
    entrypoint: bool | None = None
    entrypoint_origin: Origin | None = None
    mounts: tuple[Mount, ...] = ()
    devices: tuple[Device, ...] = ()
    env: tuple[EnvEntry, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    startup: tuple[tuple[Text, Origin], ...] = ()

    @property
    def has_image_of_file(self) -> bool:
        """Return whether a file, rather than an option, names the image."""
        return self.image_origin is not None and self.image_origin.file in self.files

    @property
    def images(self) -> tuple[tuple[str, Origin | None], ...]:
        """The images, the base first; none for an EDF without a container."""
        return ((self.image, self.image_origin), *self.above) if self.image else ()

    @property
    def image_text(self) -> str | None:
        """The images in one line for messages, None if no file has the key."""
        return " + ".join(name for name, _ in self.images) if self.images else self.image

    @property
    def own_file(self) -> str:
        """The user's own file, or the name if there is no file."""
        return self.files[-1] if self.files else self.name


@dataclass(frozen=True, slots=True)
class Problem:
    """An error or warning about an EDF, in one line. `line` is 0 and `key` "" if there is none.

    `excerpt` is the text of the line with a caret below it, for syntax errors. `see` is a code of
    the catalogue (`container_engine.faults`), or "" if the code follows from the key.
    """

    severity: Severity
    file: str
    line: int
    key: str
    message: str
    hint: str | None = None
    excerpt: str | None = None
    see: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (where, self.key, self.message) if part)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load: an EDF unless a problem is an error.

    `probed` are all paths examined, existing or not, in the order of first access.
    """

    edf: Edf | None
    problems: tuple[Problem, ...]
    probed: tuple[str, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.severity == "warning")
