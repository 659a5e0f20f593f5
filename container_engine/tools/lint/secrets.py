"""Advises on secrets in the file, where every user who may read it can see them. Pure.

The advice never repeats a value: the output of `ce` ends up in logs and tickets.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from container_engine.base.secrecy import TOKENS, is_secret_name
from container_engine.tools.lint.subject import variables_in, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Problem
    from container_engine.tools.lint.subject import Subject

_SHORTEST = 8
_WRITTEN = "a secret is written into the file"


def secrets(subject: Subject) -> Iterator[Problem]:
    """Warn of secrets in variables, and of tokens in start-up lines."""
    for name, history in subject.below("env"):
        text = written(history)
        named = is_secret_name(name) and not variables_in(history) and _could_be_secret(text)
        if named or re.search(TOKENS, text):
            hint = f'write {name} = "${{{name}}}" and export {name} before the launch'
            yield history.effective.origin.warning(history.key, _WRITTEN, hint)
    for _, history in subject.below("startup"):
        if re.search(TOKENS, written(history)):
            hint = "let the line read it from a file that only you can read"
            yield history.effective.origin.warning("startup", _WRITTEN, hint)


def _could_be_secret(text: str) -> bool:
    return len(text) >= _SHORTEST and not text.isdigit() and not text.startswith(("/", "./", "~"))
