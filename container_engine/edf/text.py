"""Text that may contain variables that only the compute node knows, in an EDF and in a plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

Operator: TypeAlias = Literal["", ":-", "-", ":+", "+", ":?", "?"]


@dataclass(frozen=True, slots=True)
class Variable:
    """`${var<op>word}`, which only the compute node can look up."""

    # A name that begins with "image:" means the environment of the image; a plan has none of these.
    var: str = field(metadata={"description": "name of a variable of the node"})
    op: Operator = field(
        default="", metadata={"description": "as in ${var<op>word}; empty: the value itself"}
    )
    word: Text = field(default="", metadata={"description": "the text after the operator"})

    __pydantic_config__: ClassVar = {"extra": "forbid"}


# A plain string is expanded and literal: it must never be scanned for variables again. A tuple has
# at least one variable; it is joined on the node after its variables have been looked up.
Text: TypeAlias = str | tuple[str | Variable, ...]


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
