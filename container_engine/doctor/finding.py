"""What a check says: one line, and a remedy where something is to be done."""

from __future__ import annotations

import enum
from typing import NamedTuple


class State(enum.StrEnum):
    """How bad it is. `failed`: containers do not start, or not for everybody."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Finding(NamedTuple):
    """The answer of one check about one host."""

    check: str
    state: State
    message: str
    remedy: str | None = None


def ok(check: str, message: str) -> Finding:
    return Finding(check, State.OK, message)


def warning(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, State.WARNING, message, remedy)


def failed(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, State.FAILED, message, remedy)
