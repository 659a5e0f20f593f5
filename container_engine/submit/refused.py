"""The error for an environment that no launch accepts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from container_engine.base.errors import UserError

if TYPE_CHECKING:
    from container_engine.edf.model import Problem


def completed(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems with their codes and, if they are errors, the hints that `ce` prints."""
    return tuple(map(_complete, problems))


def _complete(problem: Problem) -> Problem:
    from dataclasses import replace

    from container_engine.faults.catalogue import code_for, remedy

    code = code_for(problem.see, problem.key)
    hint = remedy(code, problem.hint) if problem.severity == "error" else problem.hint
    return replace(problem, hint=hint or None, see=code)


class RefusedError(UserError):
    """An environment with at least one error.

    `problems` are all problems, including warnings, each with its code and hint.
    """

    def __init__(self, problems: Iterable[Problem], details: str = "") -> None:
        self.problems = completed(problems)
        first = next(problem for problem in self.problems if problem.severity == "error")
        super().__init__(str(first), first.hint, details=details)

    def __reduce__(self) -> tuple[object, ...]:
        """Let the error return from another process, as launchers of Python functions do it."""
        return type(self), (self.problems, self.details), self.__dict__
