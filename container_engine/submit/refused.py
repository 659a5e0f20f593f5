"""The error for an environment that no launch accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from container_engine.base.errors import UserError

if TYPE_CHECKING:
    from container_engine.edf.model import Problem


class RefusedError(UserError):
    """An environment with at least one error; `problems` are all problems, including warnings."""

    def __init__(self, problems: Sequence[Problem], details: str = "") -> None:
        first = next(problem for problem in problems if problem.severity == "error")
        super().__init__(str(first), first.hint, details=details)
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[object, ...]:
        """Let the error return from another process, as launchers of Python functions do it."""
        return type(self), (self.problems, self.details), self.__dict__
