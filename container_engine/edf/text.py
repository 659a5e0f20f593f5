"""Text that may contain variables that only the compute node knows.

The classes are plain, not dataclasses or NamedTuples, because programs that start on every node
import this module, and `typing` alone costs them several milliseconds.
"""

from __future__ import annotations


class DeferredVar:
    """`${NAME}` or `${NAME<op>word}`, to be looked up later.

    `op` is one of "", ":-", "-", ":+", "+", ":?", "?"; `word` is expanded as far as it can be.
    A name that begins with "image:" means the environment of the image, any other the node's.
    """

    __slots__ = ("name", "op", "word")

    def __init__(self, name: str, op: str = "", word: Text = "") -> None:
        self.name = name
        self.op = op
        self.word = word

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeferredVar) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"DeferredVar({self.name!r}, {self.op!r}, {self.word!r})"

    def _key(self) -> tuple[str, str, Text]:
        return (self.name, self.op, self.word)


class DeferredText:
    """A string with at least one part that is a deferred variable; the others are known."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[str | DeferredVar, ...]) -> None:
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeferredText) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __repr__(self) -> str:
        return f"DeferredText({self.parts!r})"


# A plain string is expanded and literal: it must never be scanned for variables again.
Text = str | DeferredText


def join(parts: list[str | DeferredVar]) -> Text:
    """Join the parts, merging neighbouring strings; a plain string if nothing is deferred."""
    merged: list[str | DeferredVar] = []
    run: list[str] = []
    for part in parts:
        if isinstance(part, str):
            run.append(part)
            continue
        merged.extend(filter(None, ["".join(run)]))
        run = []
        merged.append(part)
    tail = "".join(run)
    if not merged:
        return tail
    return DeferredText((*merged, tail) if tail else tuple(merged))
