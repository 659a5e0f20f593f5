"""Advises on search paths that drop the image's entries or have unintended ones. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.edf.expand import escape
from container_engine.edf.values import of_image
from container_engine.lint.subject import advice, variables_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.history import History
    from container_engine.edf.model import Problem
    from container_engine.lint.subject import Subject

_LISTS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
_SYSTEM = ("/usr/bin", "/bin")


def search_paths(subject: Subject) -> Iterator[Problem]:
    """Check PATH, LD_LIBRARY_PATH and PYTHONPATH below [env]."""
    for name, history in subject.below("env"):
        if name in _LISTS and history.effective.value != "":
            yield from _list(name, history)


def _list(name: str, history: History) -> Iterator[Problem]:
    origin, key, value = history.effective.origin, history.key, history.effective.value
    used = variables_in(history)
    text = value if isinstance(value, str) else "" if isinstance(value, bool) else escape(value)
    keeps = f'write {name} = "…:{of_image(name)}" to keep what the image has'
    if name in used:
        message = f"'${{{name}}}' is the value where the job is submitted, not the image's"
        yield advice(origin, key, message, keeps)
    elif f"image:{name}" not in used:
        lost = "the programs of the image" if name == "PATH" else "what the image sets"
        if name != "PATH" or not set(_SYSTEM) & set(text.split(":")):
            yield advice(origin, key, f"replaces the image's {name}, {lost} may be missing", keeps)
    if isinstance(value, str) and "" in value.split(":"):
        hint = "an empty entry means the current directory: remove the extra ':'"
        yield advice(origin, key, "has an empty entry", hint)
    if any(entry.startswith("~") for entry in text.split(":")):
        yield advice(origin, key, "'~' is not expanded in a variable", "write ${HOME}")
