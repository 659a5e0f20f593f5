"""The error for an environment that no launch accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from container_engine.base.errors import UserError

if TYPE_CHECKING:
    from container_engine.edf.model import Problem


def complete(problem: Problem) -> Problem:
    """Return the problem with its code and, if it is an error, with the hint that `ce` prints."""
    from dataclasses import replace

    from container_engine.faults.catalogue import code_for, remedy

    code = code_for(problem.see, problem.key)
    general = remedy(code, problem.hint) if problem.severity == "error" else problem.hint
    return replace(problem, hint=general or None, see=code)


class RefusedError(UserError):
    """An environment with at least one error.

    `found` are all problems, including warnings; `problems` are the same, each with its hint.
    """

    def __init__(self, problems: Sequence[Problem], details: str = "") -> None:
        first = next(problem for problem in problems if problem.severity == "error")
        super().__init__(str(first), complete(first).hint, details=details)
        self.found = tuple(problems)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(map(complete, self.found))

    def __reduce__(self) -> tuple[object, ...]:
        """Let the error return from another process, as launchers of Python functions do it."""
        return type(self), (self.found, self.details), self.__dict__
