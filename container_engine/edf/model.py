"""The effective EDF: all files merged, all variables expanded, every value with its origin.

Frozen dataclasses, not pydantic models: these objects are made by our own code from values that the
document model (`document.py`) has already checked, so a second validation would only cost time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from container_engine.edf.text import Text

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


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount. `source` and `target` are absolute unless their first part is deferred.

    A target without deferred parts is normalised: no "..", no doubled or trailing slash. A squashfs
    mount shows the content of the file `source`; the source of a tmpfs is "tmpfs".
    """

    kind: MountKind
    source: Text
    target: Text
    options: tuple[str, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Device:
    """A CDI name (`vendor.com/class=name`) or the path of a device."""

    name: Text
    is_cdi: bool
    origin: Origin


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
    file asks for no container at all. `env` and `annotations` are sorted, the others are in the
    order of evaluation.
    """

    name: str
    files: tuple[str, ...]
    image: str | None = None
    image_origin: Origin | None = None
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
