"""The effective EDF: all files merged, all variables expanded, every value with its origin.

The engine's code makes these objects from values that the document model (`document.py`) has
checked. Mounts and devices are models with descriptions, because the schema of a plan contains
them. A text may contain variables that only the compute node knows, in an EDF and in a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias

from container_engine.base.model import PART, Array, about
from container_engine.base.text_layout import block

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

    from container_engine.base.run_check import ListedCheck

Operator: TypeAlias = Literal["", ":-", "-", ":+", "+", ":?", "?"]


@dataclass(frozen=True, slots=True)
class Variable:
    """`${var<op>word}`, which only the compute node can look up."""

    __pydantic_config__: ClassVar = PART

    # A name that begins with "image:" means the environment of the image; a plan has none of these.
    var: Annotated[str, about("name of a variable of the node")]
    op: Annotated[Operator, about("as in ${var<op>word}; empty: the value itself")] = ""
    word: Annotated[Text, about("the text after the operator")] = ""


# A plain string is expanded and literal: it must never be scanned for variables again. A tuple has
# at least one variable; it is joined on the node after its variables have been looked up.
Text: TypeAlias = str | Array[str | Variable]


def as_written(text: Text) -> str:
    """Return the text, with variables that are not known yet as the author wrote them."""
    if isinstance(text, str):
        return text
    return "".join(
        part if isinstance(part, str) else f"${{{part.var}{part.op}{as_written(part.word)}}}"
        for part in text
    )


def join(parts: list[str | Variable]) -> Text:
    """Join the parts, merging neighbouring strings; a plain string if nothing is deferred."""
    merged: list[str | Variable] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part != "":
            merged.append(part)
    if all(isinstance(part, str) for part in merged):
        return "".join(map(str, merged))
    return tuple(merged)


def escape(text: Text) -> str:
    """Return a string that expands to `text` again, its deferred variables still deferred."""
    return spell(text, _escape_literal)


def spell(text: Text, literal: Callable[[str], str]) -> str:
    """Return the text with its deferred variables as `${NAME}`; `literal` spells the rest."""
    if isinstance(text, str):
        return literal(text)
    return "".join(
        literal(part) if isinstance(part, str) else f"${{{part.var}{part.op}{_word(part.word)}}}"
        for part in text
    )


def _word(word: Text) -> str:
    return spell(word, lambda part: _escape_literal(part.replace("\\", "\\\\").replace("}", "\\}")))


def shown(text: Text) -> str:
    """Return the text for a message: as it is or, with deferred variables, as `escape` does."""
    return text if isinstance(text, str) else escape(text)


def _escape_literal(text: str) -> str:
    return text.replace("$", "$$").replace("`", "$`")


def deferred_names(text: Text) -> list[str]:
    """Return the names of all deferred variables in the text, including those in words."""
    if isinstance(text, str):
        return []
    names: list[str] = []
    for part in text:
        if isinstance(part, Variable):
            names.append(part.var)
            names.extend(deferred_names(part.word))
    return names


MountKind: TypeAlias = Literal["bind", "squashfs", "tmpfs"]
Severity: TypeAlias = Literal["error", "warning"]


class Origin:
    """The place where a value was written: an absolute path and a line, counted from 1.

    A value of the command line has the name of its option and line 0. It is not a model, because
    documents hold it as text.
    """

    def __init__(self, file: str, line: int) -> None:
        self.file, self.line = file, line

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Let pydantic read it from a document's string, and write it as one."""
        from pydantic_core import core_schema

        written = core_schema.to_string_ser_schema(when_used="always")
        return core_schema.no_info_after_validator_function(
            lambda text: cls(text, 0), core_schema.str_schema(), serialization=written
        )

    def error(self, key: str, message: str, hint: str | None = None, see: str = "") -> Problem:
        """Return an error about what is written here."""
        return Problem("error", self.file, self.line, key, message, hint, see=see)

    def warning(self, key: str, message: str, hint: str | None = None, see: str = "") -> Problem:
        """Return a warning about what is written here."""
        return Problem("warning", self.file, self.line, key, message, hint, see=see)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def __repr__(self) -> str:
        return f"Origin({self.file!r}, {self.line})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and (self.file, self.line) == (other.file, other.line)

    def __hash__(self) -> int:
        return hash((self.file, self.line))


_FROM = "file:line that asks for it, or words where no file does"


@dataclass(frozen=True, slots=True)
class Mount:
    """Sources and targets are absolute once their variables are known."""

    __pydantic_config__: ClassVar = PART

    # A target without deferred parts is normalised: no "..", no doubled or trailing slash.
    kind: Annotated[MountKind, about("what is mounted")]
    source: Annotated[Text, about("a path of the host; of a tmpfs the word tmpfs")]
    target: Annotated[Text, about("a path in the container")]
    options: Annotated[Array[str], about("flags, in the order of writing")]
    origin: Annotated[Origin, about(_FROM, alias="from")]


@dataclass(frozen=True, slots=True)
class Device:
    """A CDI name or the path of a device node."""

    __pydantic_config__: ClassVar = PART

    name: Annotated[Text, about("vendor.com/class=name, or a path of the host")]
    is_cdi: Annotated[bool, about("whether it is a CDI name", alias="cdi", strict=True)]
    origin: Annotated[Origin, about(_FROM, alias="from")]


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
    user's own last; an environment of an image alone has none. `image` is None if no file has the
    key, and "" if a file asks for no container at all; `above` are the images stacked on it, the
    highest last. `env` and `annotations` are sorted, the others are in the order of evaluation.
    """

    name: str
    files: tuple[str, ...]
    image: str | None = None
    image_origin: Origin | None = None
    above: tuple[tuple[str, Origin], ...] = ()
    description: Text | None = None
    description_origin: Origin | None = None
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
    checks: tuple[tuple[ListedCheck, Origin], ...] = ()
    has_image_of_option: bool = False

    @property
    def has_image_of_file(self) -> bool:
        """Check whether a file, rather than an option, names the image."""
        return self.image_origin is not None and self.image_origin.file in self.files

    @property
    def images(self) -> tuple[tuple[str, Origin | None], ...]:
        """Return the images, the base first; none for an EDF without a container."""
        return ((self.image, self.image_origin), *self.above) if self.image else ()

    @property
    def image_text(self) -> str | None:
        """Return the images in one line for messages, None if no file has the key."""
        return " + ".join(name for name, _ in self.images) if self.images else self.image

    @property
    def own_file(self) -> str:
        """Return the user's own file, or the name if there is no file."""
        return self.files[-1] if self.files else self.name

    @property
    def place(self) -> Origin:
        """Return the place for problems that are at no line of the file."""
        return Origin(self.own_file, 0)

    @property
    def image_place(self) -> Origin:
        """Return the place for problems of the image."""
        return self.image_origin or self.place


@dataclass(frozen=True, slots=True)
class Problem:
    """An error or warning about an EDF, in one line. `line` is 0 and `key` "" if there is none.

    `excerpt` is the text of the line with a caret below it, for syntax errors. `see` is the code
    that `ce help` explains; those of a verdict always have one.
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

    @property
    def text(self) -> str:
        """Return the problem as lines for stderr: `ce: error: …`, the excerpt, the hint."""
        return block(self.severity, str(self), self.hint, self.excerpt)


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
