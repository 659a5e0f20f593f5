"""Collects all advice on one environment. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.lint.caches import caches
from container_engine.lint.gpus import gpus
from container_engine.lint.mounts import mounts
from container_engine.lint.network import network
from container_engine.lint.pinning import pinning
from container_engine.lint.secrets import secrets
from container_engine.lint.sockets import sockets
from container_engine.lint.startup import startup
from container_engine.lint.tuning import tuning
from container_engine.lint.variables import (
    quoted_values,
    search_paths,
    shell_variables,
    slurm_variables,
    unmounted,
)

if TYPE_CHECKING:
    from container_engine.edf.model import Problem
    from container_engine.lint.subject import Subject

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
