"""Secrets that stand in the file for everybody who may read it. Pure.

A value is never repeated in the advice: what `ce` prints ends up in logs and tickets.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from container_engine.lint.subject import advice, variables_in, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Problem
    from container_engine.lint.subject import Subject

# Prefixes that services give to what must stay secret, so that scanners find it.
_TOKENS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"
    r"|glpat-[A-Za-z0-9_-]{16,}|sk-[A-Za-z0-9_-]{20,}|AKIA[A-Z0-9]{16}|xox[abpr]-[A-Za-z0-9-]{10,}"
    r"|nvapi-[A-Za-z0-9_-]{20,})|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_WORDS = frozenset(["TOKEN", "SECRET", "PASSWORD", "PASSWD", "APIKEY", "CREDENTIALS"])
_ENDINGS = ("API_KEY", "ACCESS_KEY", "SECRET_KEY", "PRIVATE_KEY", "AUTH_KEY")
_SHORTEST = 8


def secrets(subject: Subject) -> Iterator[Problem]:
    """In variables, and in start-up lines that set one."""
    for name, history in subject.below("env"):
        text = written(history)
        named = _is_secret_name(name) and not variables_in(history) and _could_be_secret(text)
        if named or _TOKENS.search(text):
            hint = f'write {name} = "${{{name}}}" and export {name} before the launch'
            yield advice(
                history.said.origin, history.key, "a secret is written into the file", hint
            )
    for _, history in subject.below("startup"):
        if _TOKENS.search(written(history)):
            hint = "let the line read it from a file that only you can read"
            yield advice(history.said.origin, "startup", "a secret is written into the file", hint)


def _is_secret_name(name: str) -> bool:
    upper = name.upper()
    return bool(_WORDS & set(upper.split("_"))) or upper.endswith(_ENDINGS)


def _could_be_secret(text: str) -> bool:
    return len(text) >= _SHORTEST and not text.isdigit() and not text.startswith(("/", "./", "~"))
