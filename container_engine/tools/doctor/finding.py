"""The result of a check: one line, and a remedy if there is something to do."""

from __future__ import annotations

import enum
from typing import NamedTuple


class State(enum.StrEnum):
    """The severity of a finding. `failed`: containers do not start, or not for every user."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Finding(NamedTuple):
    """The result of one check on one host."""

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
