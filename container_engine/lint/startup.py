"""Advises on variables in start-up lines that the container's shell never sees. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.lint.subject import advice, variables_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Problem
    from container_engine.lint.subject import Subject


def startup(subject: Subject) -> Iterator[Problem]:
    """Warn of each `$NAME` that is replaced at submit, before a shell in the container runs."""
    for _, history in subject.below("startup"):
        for name in sorted(variables_in(history)):
            if name == "EDF_DIR" or name.startswith("image:") or subject.deferred(name):
                continue
            message = f"'${name}' is replaced when the job is submitted, by the host's value"
            hint = f"write '$${name}' for the value that the container's shell has"
            yield advice(history.effective.origin, history.key, message, hint)
