"""Find libraries of the node and their dependencies, as the node's own loader does."""

from __future__ import annotations

import os

from container_engine.node.libraries import elf
from container_engine.node.libraries.loader_cache import Cache
from container_engine.node.libraries.names import is_c_library
from container_engine.node.libraries.trees import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINES = {"x86_64": 62, "aarch64": 183, "ppc64le": 21, "s390x": 22, "riscv64": 243}
TRIPLES = {
    62: "x86_64-linux-gnu",
    183: "aarch64-linux-gnu",
    21: "powerpc64le-linux-gnu",
    22: "s390x-linux-gnu",
    243: "riscv64-linux-gnu",
}

CACHE = "/etc/ld.so.cache"
# a cache of 100,000 libraries is smaller
MOST_OF_CACHE = 8 << 20


def default_directories(machine: int) -> list[str]:
    """Return the default search directories of the loaders of all distributions."""
    triple = TRIPLES.get(machine, "none")
    return [
        *(f"/lib/{triple}", f"/usr/lib/{triple}", "/lib64", "/usr/lib64", "/lib", "/usr/lib"),
    ]


def own_paths(library: elf.Library, origin: str = "") -> list[str]:
    """Return the directories that a library names for its dependencies.

    `origin` is its own directory if that differs in the container.
    """
    text = library.runpath or library.rpath
    origin = origin or os.path.dirname(library.path)
    places = []
    for directory in text.split(":") if text else ():
        for word in ("$ORIGIN", "${ORIGIN}"):
            directory = directory.replace(word, origin)  # noqa: PLW2901
        for word in ("$LIB", "${LIB}"):
            directory = directory.replace(word, "lib64")  # noqa: PLW2901
        if directory.startswith("/"):
            places.append(os.path.normpath(directory))
    return places


class Host:
    """The node's libraries. Each file is read once; an unreadable file counts as absent."""

    def __init__(self, machine: int) -> None:
        self.machine = machine
        self.tree = Tree()
        self._directories = default_directories(machine)
        self._known: dict[str, elf.Library | None] = {}
        self._cache: Cache | None = None

    def read(self, path: str) -> elf.Library | None:
        if path not in self._known:
            self._known[path] = self._read(path)
        return self._known[path]

    def _read(self, path: str) -> elf.Library | None:
        # a bind mount shows the target of a symlink, and $ORIGIN is the target's directory
        real = self.tree.real(path)
        if real != path:
            return self.read(real)
        try:
            library = elf.read(path, self.tree)
        except (OSError, elf.NotALibraryError):
            return None
        library.on_node = True
        return library if library.machine == self.machine else None

    def problem(self, path: str) -> str:
        """Return why `read` returned None."""
        try:
            elf.read(path, self.tree)
        except OSError as error:
            return str(error.strerror)
        except elf.NotALibraryError as error:
            return str(error)
        return "built for another processor"

    def find(self, name: str, wanted_by: elf.Library) -> elf.Library | None:
        """Return the library that the node's loader takes for a dependency, or None."""
        found = (self.read(path) for path in self._places(name, wanted_by))
        return next(filter(None, found), None)

    def _places(self, name: str, wanted_by: elf.Library) -> Iterator[str]:
        if "/" in name:
            yield name
            return
        yield from (f"{directory}/{name}" for directory in own_paths(wanted_by))
        if self._cache is None:
            self._cache = Cache(self.tree.content(CACHE, MOST_OF_CACHE), self.machine)
        yield from self._cache.find(name)
        yield from (f"{directory}/{name}" for directory in self._directories)

    def dependencies(self, library: elf.Library) -> dict[str, elf.Library | None]:
        """Return the libraries that a library needs itself, by name, without the C library.

        The value is None for those that the node lacks.
        """
        return {name: self.find(name, library) for name in library.needed if not is_c_library(name)}
