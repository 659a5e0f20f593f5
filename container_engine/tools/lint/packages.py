"""Advises on Python packages in many small files of a file server, with their cost. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from container_engine.edf.entries import activated, on_host
from container_engine.edf.model import Origin, Problem
from container_engine.tools.lint.subject import Subject

# `import scipy.stats` opens 726 of the 2319 modules of an environment with NumPy, SciPy and pip
_IMPORTED = 1 / 3
_FEW = 100
_KINDS = {"virtual": "a virtual environment", "conda": "a conda environment", "": "Python packages"}
_HINTS = {
    "virtual": "ce pack --venv DIRECTORY FILE.sqsh makes one file of it: ce help python-packages",
    "conda": "conda-pack --format squashfs makes one file of it: ce help python-packages",
    "": "ce pack DIRECTORY FILE.sqsh makes one file of them: ce help python-packages",
}


class _Place(NamedTuple):
    path: str
    key: str
    origin: Origin


def packages(subject: Subject) -> Iterator[Problem]:
    """Warn of virtual and conda environments, and of PYTHONPATH, on a network file system."""
    seen: set[str] = set()
    for place in _places(subject):
        kind = subject.network_of(place.path)
        if not kind or place.path in seen:
            continue
        seen.add(place.path)
        found = subject.packages(place.path)
        is_named = place.key != "mounts"
        if found is None or found.modules < _FEW or not (found.kind or is_named):
            continue
        opens = round(found.modules * _IMPORTED)
        message = (
            f"{_KINDS[found.kind]}, {found.files} files in '{place.path}' on {kind}: to import a "
            f"third of its {found.modules} modules is {opens} opens there, times the ranks"
        )
        yield place.origin.warning(place.key, message, _HINTS[found.kind])


def _places(subject: Subject) -> Iterator[_Place]:
    mounts = subject.edf.mounts
    for directory, origin in activated(subject.edf.startup):
        yield _Place(on_host(directory, mounts), "startup", origin)
    for entry in subject.edf.env:
        if entry.name in {"PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"}:
            parts = (entry.value,) if isinstance(entry.value, str) else entry.value
            text = "".join(part if isinstance(part, str) else ":" for part in parts)
            for path in filter(None, text.split(":")):
                yield _Place(on_host(path, mounts), f"env.{entry.name}", entry.origin)
    for mount in mounts:
        if mount.kind == "bind" and isinstance(mount.source, str):
            yield _Place(mount.source, "mounts", mount.origin)
