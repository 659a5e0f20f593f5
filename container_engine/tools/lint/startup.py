"""Advises on start-up lines that do not do what they seem to. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from container_engine.tools.lint.subject import variables_in, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Problem
    from container_engine.tools.lint.subject import Subject

_CHANGES_DIRECTORY = re.compile(r"\s*cd(\s+[^\s;&|]+)?\s*")


def startup(subject: Subject) -> Iterator[Problem]:
    """Warn of each `$NAME` that is replaced at submit, before a shell in the container runs.

    Also warn of a last line that only changes the directory: tasks do not start there.
    """
    lines = subject.below("startup")
    is_deferred = subject.offer.site.is_deferred
    if lines and _CHANGES_DIRECTORY.fullmatch(written(lines[-1][1])):
        message = "changes the directory of later start-up lines only"
        hint = "workdir is the directory in which tasks start"
        yield lines[-1][1].effective.origin.warning(lines[-1][1].key, message, hint)
    for _, history in lines:
        for name in sorted(variables_in(history)):
            if name == "EDF_DIR" or name.startswith("image:") or is_deferred(name):
                continue
            message = f"'${name}' is replaced when the job is submitted, by the host's value"
            hint = f"write '$${name}' for the value that the container's shell has"
            yield history.effective.origin.warning(history.key, message, hint)
