"""Locate a path of the container before the container exists: in the image, or on the node."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from container_engine.node.libraries.trees import Tree

_MOST_LINKS = 40


class Mounts:
    """The bind mounts over the image, as targets in the container and sources on the node."""

    def __init__(self, binds: Sequence[tuple[str, str]], image: Tree, node: Tree) -> None:
        self._image, self._node = image, node
        self._directories: dict[str, str] = {}
        found = [(self._inside(target), source) for target, source in binds]
        self._targets = {target for target, _source in found}
        # the innermost mount wins
        self._binds = sorted(found, key=lambda bind: len(bind[0]), reverse=True)

    def locate(self, path: str) -> tuple[bool, str]:
        """Return whether the file is on the node, and its path there or in the image.

        Symlinks are followed as in the container: one below a mount may lead out of it into the
        image, and the other way round. Directories below a mount are not resolved.
        """
        for _ in range(_MOST_LINKS if self._binds else 0):
            here = self._inside(path)
            source = self._source(here)
            if here in self._targets:
                # mounting a symlink mounts what it leads to on the node
                return True, str(source)
            tree = self._image if source is None else self._node
            try:
                link = tree.readlink(source or here)
            except OSError:
                return source is not None, source or here
            path = os.path.normpath(os.path.join(os.path.dirname(here), link))
        return False, path

    def directory(self, path: str) -> tuple[bool, str]:
        """Locate a directory as `locate` does a file; symlinks below a mount are not followed."""
        real = self._real(path)
        source = self._source(real)
        return source is not None, source or real

    def in_container(self, path: str) -> str:
        """Return a node's path as it is in the container, unchanged if no mount has it."""
        for target, source in self._binds:
            if path == source or path.startswith(source.rstrip("/") + "/"):
                return target.rstrip("/") + path[len(source.rstrip("/")) :]
        return path

    def _inside(self, path: str) -> str:
        """Return the path with the symlinks of its directory resolved as in the image."""
        directory, name = os.path.split(path)
        return f"{self._real(directory).rstrip('/')}/{name}"

    def _real(self, directory: str) -> str:
        if directory not in self._directories:
            self._directories[directory] = self._image.real(directory)
        return self._directories[directory]

    def _source(self, path: str) -> str | None:
        for target, source in self._binds:
            if path == target or path.startswith(target.rstrip("/") + "/"):
                return source + path[len(target.rstrip("/")) :]
        return None
