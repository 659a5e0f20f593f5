"""Advises on values with quotes of their own, which no shell takes away. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.lint.subject import advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Problem
    from container_engine.lint.subject import Subject


def quoted_values(subject: Subject) -> Iterator[Problem]:
    """Warn of variables whose value begins and ends with a quote that is nowhere else in it."""
    for name, history in subject.below("env"):
        value = history.effective.value
        if not isinstance(value, str) or not _is_quoted(value):
            continue
        inner = value[1:-1]
        message = f"its value is {value}, with the quotes: no shell takes them away"
        hint = f'write {name} = "{inner}"' + ("" if inner else ", which removes the variable")
        yield advice(history.effective.origin, history.key, message, hint)


def _is_quoted(value: str) -> bool:
    return len(value) > 1 and value[0] == value[-1] in "'\"" and value.count(value[0]) == 2
