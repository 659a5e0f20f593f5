"""Collects all advice on one environment. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.tools.lint.caches import caches
from container_engine.tools.lint.gpus import gpus
from container_engine.tools.lint.mounts import mounts
from container_engine.tools.lint.network import network
from container_engine.tools.lint.pinning import pinning
from container_engine.tools.lint.secrets import secrets
from container_engine.tools.lint.sockets import sockets
from container_engine.tools.lint.startup import startup
from container_engine.tools.lint.tuning import tuning
from container_engine.tools.lint.variables import (
    quoted_values,
    search_paths,
    shell_variables,
    slurm_variables,
    unmounted,
)

if TYPE_CHECKING:
    from container_engine.edf.model import Problem
    from container_engine.tools.lint.subject import Subject

MATTERS = (
    pinning,
    search_paths,
    secrets,
    tuning,
    network,
    mounts,
    startup,
    shell_variables,
    sockets,
    slurm_variables,
    gpus,
    quoted_values,
    unmounted,
    caches,
)


def advise(subject: Subject) -> list[Problem]:
    """Return all advice, sorted by file in the order of evaluation and by line."""
    order = {file: index for index, file in enumerate(subject.edf.files)}
    found = [problem for matter in MATTERS for problem in matter(subject)]
    return sorted(found, key=lambda problem: (order.get(problem.file, 0), problem.line))
