"""Find the libraries of the node and of the image, as the loader of each does.

Mounts over the image are taken into account: a path below one is looked up on the node.
"""

from __future__ import annotations

import os

from container_engine.node.libraries import elf
from container_engine.node.libraries.elf import Version, c_version, is_c_library
from container_engine.node.libraries.loader_cache import Cache
from container_engine.node.libraries.trees import Tree
from container_engine.node.pattern import expand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from container_engine.node.libraries.trees import ImageTree


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


_MOST_OF_MUSL_PATH = 64 << 10
_MUSL_DEFAULT = ("/lib", "/usr/local/lib", "/usr/lib")
# install directories, in published images, of software that finds its libraries by itself
_ODD_PLACES = (
    *("/usr/local/lib", "/usr/local/lib64", "/usr/local/*/lib", "/usr/local/*/lib64"),
    *("/opt/*/lib", "/opt/*/lib64", "/opt/*/*/lib", "/opt/*/*/lib64"),
    *("/usr/lib64/openmpi/lib", "/usr/lib64/mpich/lib", "/usr/lib/*-linux-gnu/openmpi/lib"),
)


class Image:
    """The libraries of the image.

    `kind` is the C library: glibc, musl, or none if the image has neither for this machine.
    """

    def __init__(
        self, host: Host, tree: ImageTree, library_path: str, binds: Sequence[tuple[str, str]]
    ) -> None:
        self.machine = host.machine
        self._host = host
        self.tree = tree
        self.mounts = Mounts(binds, tree, host.tree)
        self._known: dict[str, elf.Library | None] = {}
        self._odd: list[str] | None = None
        self.cache = Cache(tree.content(CACHE, MOST_OF_CACHE), self.machine)
        self._path = [part for part in library_path.split(":") if part.startswith("/")]
        self.musl_path = ""
        self._defaults: Sequence[str] = ()
        self.libc = self._find_libc()
        self.version: Version = c_version(self.libc.defines) if self.libc else ()
        self.kind = "glibc" if self.libc else "none"
        if not self.libc:
            self._look_for_musl()

    def _find_libc(self) -> elf.Library | None:
        triple = TRIPLES.get(self.machine, "none")
        families = (
            (f"/lib/{triple}", f"/usr/lib/{triple}", "/lib", "/usr/lib"),
            ("/lib64", "/usr/lib64"),
            ("/lib", "/usr/lib"),
        )
        listed = self.cache.find("libc.so.6")
        for directories in families:
            for directory in directories:
                path = f"{directory}/libc.so.6"
                if (not listed or path in listed) and (libc := self.read(path)):
                    self._defaults = self._different(directories)
                    return libc
        self._defaults = families[1]
        return next((libc for path in listed if (libc := self.read(path))), None)

    def _different(self, directories: Sequence[str]) -> list[str]:
        """Return one path for each directory, since each lookup in an image takes time."""
        return list({self.tree.real(path): path for path in reversed(directories)}.values())[::-1]

    def _look_for_musl(self) -> None:
        """Find musl, whose loader is its libc; a file named after it may set the search path."""
        for loader in _expand("/lib/ld-musl-*.so.1", self.tree):
            libc = self.read(loader)
            if libc:
                architecture = os.path.basename(loader)[len("ld-musl-") : -len(".so.1")]
                self.kind, self.libc = "musl", libc
                self.musl_path = f"/etc/ld-musl-{architecture}.path"
                content = self.tree.content(self.musl_path, _MOST_OF_MUSL_PATH)
                text = content.decode("utf-8", "surrogateescape")
                self._defaults = (
                    tuple(text.replace("\n", ":").strip(":").split(":")) if text else ()
                )
                self._defaults = self._defaults or _MUSL_DEFAULT

    @property
    def default_directories(self) -> Sequence[str]:
        return self._defaults

    def read(self, path: str) -> elf.Library | None:
        if path not in self._known:
            on_node, where = self.mounts.locate(path)
            self._known[path] = self._host.read(where) if on_node else self._read(where)
        return self._known[path]

    def _read(self, path: str) -> elf.Library | None:
        try:
            library = elf.read(path, self.tree)
        except (OSError, elf.NotALibraryError):
            return None
        # the real file name has the version
        library.path = self.tree.real(path)
        return library if library.machine == self.machine else None

    def entries(self, pattern: str) -> list[str]:
        """Return the files of the container that match."""
        directory, _slash, name = pattern.rpartition("/")
        on_node, where = self.mounts.directory(directory)
        found = _expand(f"{where}/{name}", self._host.tree if on_node else self.tree)
        return [f"{directory}/{os.path.basename(path)}" for path in found]

    def has(self, path: str) -> bool:
        return bool(self.entries(path))

    def find(self, name: str) -> list[str]:
        """Return the image's own files of this name, in the order of the loader."""
        return self._distinct(list(self._found(name, ())))

    def first(self, name: str, own: Sequence[str] = ()) -> str | None:
        """Return the path that the loader takes for this name or path, None if there is none.

        `own` are directories named by the library that needs it.
        """
        return next(self._found(name, own), None)

    def _found(self, name: str, own: Sequence[str]) -> Iterator[str]:
        return (path for path in dict.fromkeys(self._places(name, own)) if self.read(path))

    def _places(self, name: str, own: Sequence[str]) -> list[str]:
        if "/" in name:
            return [name]
        return [
            *(f"{directory}/{name}" for directory in (*own, *self._path)),
            *(self.cache.find(name) if self.kind == "glibc" else ()),
            *(f"{directory}/{name}" for directory in self._defaults),
        ]

    def everywhere(self, name: str) -> list[str]:
        """Return all files of this name, also those that only some programs find by themselves."""
        if self._odd is None:
            self._odd = [path for pattern in _ODD_PLACES for path in _expand(pattern, self.tree)]
        odd = (f"{directory}/{name}" for directory in self._odd)
        return self._distinct([*self.find(name), *(path for path in odd if self.read(path))])

    def _distinct(self, paths: Sequence[str]) -> list[str]:
        """Return one path for each file of the image itself; files below mounts are left out."""
        own = [path for path in paths if not self.mounts.locate(path)[0]]
        by_file: dict[str, str] = {}
        for path in own:
            by_file.setdefault(self.tree.real(path), path)
        return list(by_file)

    def before_cache(self, name: str) -> list[str]:
        """Return the files of this name that take precedence over the loader's cache."""
        paths = [f"{directory}/{name}" for directory in self._path]
        return self._distinct([path for path in paths if self.read(path)])

    def versions_of(self, stem: str) -> list[str]:
        """Return the names `STEM.so.N…` that the image has, even without a loader's cache."""
        listed = self.cache.names(f"{stem}.so.")
        directories = dict.fromkeys([*self._path, *self._defaults])
        files = [path for d in directories for path in self.entries(f"{d}/{stem}.so.*")]
        if not listed and not files:
            files = [path for d in _ODD_PLACES for path in self.entries(f"{d}/{stem}.so.*")]
        return list(dict.fromkeys([*listed, *map(os.path.basename, files)]))


def _expand(pattern: str, tree: Tree) -> list[str]:
    return expand(pattern, (tree.has, tree.names))
