"""Replaces `${image:NAME}` in the plan's strings with variables of the image. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from container_engine.edf.model import DeferredVar, Problem
from container_engine.plan.model import Variable

if TYPE_CHECKING:
    from container_engine.edf.model import Origin
    from container_engine.edf.model import Text as EdfText
    from container_engine.plan.model import Image, Operator, Text

PREFIX = "image:"


class Resolver:
    """A translator of the EDF's strings into the plan's, which collects their problems."""

    def __init__(self, image: Image | None) -> None:
        """Pass None if nothing is known of the image: its variables may then have any value."""
        self._image = image
        self.problems: list[Problem] = []

    def text(self, text: EdfText, origin: Origin, key: str) -> Text:
        """Return `text` with the image's variables filled in; those of the node stay."""
        if isinstance(text, str):
            return text
        parts: list[str | Variable] = []
        for part in text.parts:
            parts.extend(self._part(part, origin, key))
        return _joined(parts)

    def _part(self, part: str | DeferredVar, origin: Origin, key: str) -> list[str | Variable]:
        if isinstance(part, str):
            return [part]
        if part.name.startswith(PREFIX):
            return _parts(self.text(self._chosen(part, origin, key), origin, key))
        word = self.text(part.word, origin, key)
        return [Variable(var=part.name, op=cast("Operator", part.op), word=word)]

    def _chosen(self, variable: DeferredVar, origin: Origin, key: str) -> EdfText:
        """Return the value of an image variable, or the word of its operator."""
        if self._image is None:
            return ""
        name = variable.name.removeprefix(PREFIX)
        value = self._image.env.get(name)
        # the colon of an operator makes an empty value count as none
        present = value is not None and not (variable.op.startswith(":") and value == "")
        kind = variable.op[-1:]
        if kind == "+":
            return variable.word if present else ""
        if present and value is not None:
            return value
        if kind == "-":
            return variable.word
        self._complain(self._image, variable, origin, key)
        return ""

    def _complain(self, image: Image, variable: DeferredVar, origin: Origin, key: str) -> None:
        # the word of ${…:?word} is the user's own message
        said = variable.word if variable.op.endswith("?") else ""
        message = said if isinstance(said, str) and said else "the image does not define it"
        found = f"${{{variable.name}}}: {message}"
        hint = _hint(image, variable.name.removeprefix(PREFIX))
        problem = Problem(
            *("error", origin.file, origin.line, key, found, hint), see="image-variable"
        )
        self.problems.append(problem)


def _hint(image: Image, name: str) -> str:
    if not image.source:
        return f"nothing is known of {image.path} but its files, there is no {image.path}.json"
    return f"'${{image:{name}:-}}' is empty where the image has no {name}"


def _parts(text: Text) -> list[str | Variable]:
    return [text] if isinstance(text, str) else list(text)


def _joined(parts: list[str | Variable]) -> Text:
    """Merge neighbouring strings; return a plain string if no variable is left."""
    merged: list[str | Variable] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part != "":
            merged.append(part)
    if not merged:
        return ""
    if len(merged) == 1 and isinstance(merged[0], str):
        return merged[0]
    return tuple(merged)
