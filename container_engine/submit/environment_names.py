"""Lists the environments that a plain name can refer to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from container_engine.edf.locate import search_path
from container_engine.submit.context import Context, places

_MAX_NAMES = 1000


class Named(NamedTuple):
    """The name of an environment and the absolute path of its file."""

    name: str
    file: str


def environments(context: Context) -> list[Named]:
    """Return the environments of the search path in its order, up to a limit.

    Of several files with one name, the list has the one that the name refers to.
    """
    found: dict[str, Named] = {}
    for directory in search_path(context.env, places(context).edf_path):
        for named in _below(os.path.normpath(os.path.join(context.cwd, directory))):
            found.setdefault(named.name, named)
            if len(found) == _MAX_NAMES:
                return list(found.values())
    return list(found.values())


def _below(directory: str) -> Iterator[Named]:
    for path, folders, files in os.walk(directory):
        folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
        for file in sorted(files):
            if file.endswith(".toml") and not file.startswith("."):
                full = os.path.join(path, file)
                yield Named(os.path.relpath(full, directory).removesuffix(".toml"), full)
