"""Resolve symlinks, each directory only once: the libraries of a hook are in very few."""

from __future__ import annotations

import os

_LONGEST_CHAIN = 20


class Links:
    """The resolved symlinks of the file system, which must not change while this is used."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def real(self, path: str) -> str:
        """Return the absolute `path` with its symlinks resolved, as os.path.realpath does."""
        if path not in self._known:
            self._known[path] = self._look(path)
        return self._known[path]

    def _look(self, path: str) -> str:
        directory, _slash, name = path.rpartition("/")
        if not directory or name in ("", ".", ".."):
            return os.path.realpath(path)
        if directory not in self._known:
            self._known[directory] = os.path.realpath(directory)
        start = self._known[directory].rstrip("/")
        for _ in range(_LONGEST_CHAIN):
            try:
                name = os.readlink(f"{start}/{name}")
            except OSError:
                return f"{start}/{name}"
            # most symlinks lead to a file beside them, libx.so.1 to libx.so.1.2
            if "/" in name or name in (".", ".."):
                break
        return os.path.realpath(path)
