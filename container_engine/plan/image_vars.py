"""Replaces `${image:NAME}` in the plan's strings with variables of the image. Pure.

`${image:digest}` is the image's digest, in the form in which a store names the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from container_engine.base.variables import MISSING, VALUE, WORD, replacement_kind
from container_engine.edf.model import Origin, Problem, Text, Variable, join
from container_engine.plan.model import Image

PREFIX = "image:"
_DIGEST = "digest"


class Resolver:
    """Fills the image's variables into strings of an EDF, and collects their problems."""

    def __init__(self, image: Image | None) -> None:
        """Pass None if nothing is known of the image: its variables are then replaced by ""."""
        self._image = image
        self.problems: list[Problem] = []

    def text(self, text: Text, origin: Origin, key: str) -> Text:
        """Return `text` with the image's variables filled in; those of the node stay."""
        if isinstance(text, str):
            return text
        parts: list[str | Variable] = []
        for part in text:
            parts.extend(self._part(part, origin, key))
        return join(parts)

    def _part(self, part: str | Variable, origin: Origin, key: str) -> Iterable[str | Variable]:
        if isinstance(part, str):
            return [part]
        if part.var.startswith(PREFIX):
            found = self.text(self._chosen(part, origin, key), origin, key)
            return [found] if isinstance(found, str) else found
        return [replace(part, word=self.text(part.word, origin, key))]

    def _chosen(self, variable: Variable, origin: Origin, key: str) -> Text:
        """Return the value of an image variable, or the word of its operator."""
        if self._image is None:
            return ""
        value = _value(self._image, variable.var.removeprefix(PREFIX))
        kind = replacement_kind(variable.op, value)
        if kind == WORD:
            return variable.word
        if kind == MISSING:
            self._complain(self._image, variable, origin, key)
        return value or "" if kind == VALUE else ""

    def _complain(self, image: Image, variable: Variable, origin: Origin, key: str) -> None:
        # the word of ${…:?word} is the user's own message
        own = variable.word if variable.op.endswith("?") else ""
        message = own if isinstance(own, str) and own else "the image does not define it"
        found = f"${{{variable.var}}}: {message}"
        hint = _hint(image, variable.var.removeprefix(PREFIX))
        self.problems.append(origin.error(key, found, hint, "image-variable"))


def _value(image: Image, name: str) -> str | None:
    if name != _DIGEST:
        return image.env.get(name)
    digests = [image.digest or image.content]
    digests += [part.digest or part.content for part in image.above]
    return "+".join(digests).replace(":", "-") if all(digests) else None


def _hint(image: Image, name: str) -> str:
    if name == _DIGEST:
        return f"ce lock notes that of a file; '${{image:{name}:-}}' is empty where none is known"
    if not image.source:
        return f"nothing is known of {image.path} but its files, there is no {image.path}.json"
    return f"'${{image:{name}:-}}' is empty where the image has no {name}"
