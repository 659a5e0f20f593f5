"""Advises on variables of the login shell that make programs of the image load host files. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.edf.model import Origin
from container_engine.lint.subject import advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Problem
    from container_engine.lint.subject import Subject

# set by modules, Conda and virtual environments
_NAMES = (
    *("CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"),
)
# the origin in advice that is not about a file
_SHELL = Origin("your shell", 0)


def shell_variables(subject: Subject) -> Iterator[Problem]:
    """Warn of these variables of the shell unless the environment sets or removes them."""
    decided = {entry.name for entry in subject.edf.env}
    if subject.edf.image_origin is None or subject.edf.image == "":
        return
    for name in _NAMES:
        if subject.variables.get(name) and name not in decided:
            message = "is set; tasks get it, unless the image sets its own"
            yield advice(_SHELL, name, message, f'{name} = "" in [env] removes it')
