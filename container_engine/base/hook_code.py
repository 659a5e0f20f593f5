"""The directory of the engine's hooks, and the Python package that a hook has in its own.

Imports little, so that nodes start quickly.
"""

from __future__ import annotations

import os
import sys

import container_engine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def directory(prefix: str) -> str:
    """Return the engine's hooks: beside a checkout's package, else below the prefix."""
    package = os.path.dirname(os.path.abspath(container_engine.__file__))
    checkout = os.path.join(os.path.dirname(package), "hooks")
    return checkout if os.path.isdir(checkout) else f"{prefix}/share/container-engine/hooks"


def has(prefix: str, hook: str, package: str, part: str) -> bool:
    """Check whether the package of a hook has this module."""
    named = all(name.isidentifier() for name in (hook, package, part))
    return named and os.path.isfile(f"{directory(prefix)}/{hook}/{package}/{part}.py")


def load(prefix: str, hook: str, package: str, part: str) -> ModuleType | None:
    """Return the module `part` of the package of a hook, None if there is none.

    A plan names hook and package: only what is in the engine's own directory is imported.
    """
    place = f"{directory(prefix)}/{hook}"
    if not has(prefix, hook, package, part):
        return None
    if place not in sys.path:
        sys.path.append(place)
    return __import__(f"{package}.{part}", fromlist=[part])
