"""Text that may contain variables that only the compute node knows, in an EDF and in a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

from container_engine.base.model import PART, Array, about

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
