"""Check, before the tasks start, for faults that would show only as slowness or as a crash.

Each check returns a sentence, or "" if nothing is wrong.
"""

from __future__ import annotations

import os

from container_engine.node.libraries.choose import OWN_DIRECTORY, Decision
from container_engine.node.libraries.elf import (
    Library,
    NotALibraryError,
    c_version,
    dotted,
    is_c_library,
    numbers,
    symbols,
)
from container_engine.node.libraries.search import Host, own_paths
from container_engine.node.pattern import has_wildcard, matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from container_engine.node.libraries.search import Image
    from container_engine.node.libraries.trees import Tree


# MPICH and its derivatives, whose own client supports PMI 1 and 2; Open MPI 4 and 5
_MPICH, _OPEN_MPI = ("libmpi.so.12", "libmpich.so.12"), ("libmpi.so.40",)
# Open MPI's parts for PMI 1 and 2 are files of their own, or built into this library that it needs
_BELOW = "libopen-pal."
_COMPONENTS = ("openmpi*/mca_pmix_s[12].so", "openmpi/lib/openmpi*/mca_pmix_s[12].so")
# strings in an MPI that loads PMIx or another library for it, or has PMIx built in; the name
# PMIx_Init proves nothing, because newer MPICH versions have it in a message
_PMIX = (b"libpmi", b"PMIX_MCA")
_NAMES = {"pmix": "PMIx", "pmi2": "PMI2"}


def unsupported(
    name: str, pmi: str, holds: Callable[[bytes], bool], *, has_components: bool
) -> str:
    """Return a message if the library certainly lacks `pmi` ("pmix" or "pmi2"), else "".

    `holds` searches for bytes in the library's file and in those of _BELOW.
    """
    if pmi == "pmix":
        is_certain = name in _MPICH and holds(b"\0PMI_FD\0") and not any(map(holds, _PMIX))
    else:
        is_certain = name in _OPEN_MPI and not has_components and not holds(b"PMI2_Init")
    if not is_certain:
        return ""
    kind = "MPICH" if name in _MPICH else "Open MPI"
    return f"the image's {kind} ({name}) does not support {_NAMES[pmi]}"


_MOST_OF_LIBRARY = 64 << 20


class LoaderView:
    """The image with the libraries that hooks add, as the loader of a task will see it.

    `search` has the paths of libraries that hooks make known to the loader, by name. `path` is the
    tasks' search path for programs.
    """

    def __init__(
        self,
        image: Image,
        host: Host,
        decisions: Mapping[str, Decision],
        search: Mapping[str, str],
        path: str,
    ) -> None:
        self.image = image
        self._path = path
        self._ours_last = image.kind == "musl"
        self._host = host
        self._search = search
        self._injected = {
            name: decision.library
            for decision in decisions.values()
            if decision.is_from_node and decision.library
            for name in decision.names
        }
        self._moved = {
            id(decision.library)
            for decision in decisions.values()
            if decision.is_from_node and not decision.stays
        }
        self._replaced = {
            place: decision.library
            for decision in decisions.values()
            for place in decision.places
            if decision.library
        }

    def find(self, name: str, wanted_by: Library | None = None) -> Library | None:
        """Return the library that the loader takes for this name or path, None if there is none."""
        first = own_paths(wanted_by, self._origin(wanted_by)) if wanted_by else ()
        found = self.image.first(name, first)
        # the library's own directories come first; musl searches our directories last
        if found and ("/" in name or os.path.dirname(found) in first or self._ours_last):
            return self._at(found)
        if name in self._injected:
            return self._injected[name]
        if name in self._search:
            return self.image.read(self._search[name])
        return self._at(found) if found else None

    def _origin(self, library: Library) -> str:
        """Return the directory of a library in the container."""
        if id(library) in self._moved:
            return OWN_DIRECTORY
        return os.path.dirname(self.image.mounts.in_container(library.path))

    def _tree(self, library: Library) -> Tree:
        """Return the file system that has the library's file."""
        return self._host.tree if library.on_node else self.image.tree

    def _at(self, path: str) -> Library | None:
        return self._replaced.get(path) or self.image.read(path)

    # ---- checks ------------------------------------------------------------------------------

    def loadable(self, subject: str) -> str:
        """Check that a library loads with all dependencies.

        A pattern means the first library of the hooks that matches.
        """
        if has_wildcard(subject):
            given = [name for name in self._injected if matches(name, subject)]
            return self.loadable(given[0]) if given else f"no hook provides {subject}"
        # check the node's library, even if an image with musl keeps its own
        library = self._injected.get(subject) or self.find(subject)
        if library is None:
            return f"{subject} is not in this container"
        problem = next(self._problems(library), "")
        return f"{subject} cannot be loaded in this container: {problem}" if problem else ""

    def _problems(self, library: Library) -> Iterator[str]:
        seen = {library.path}
        queue = [library]
        loaded = []
        while queue:
            parent = queue.pop(0)
            loaded.append(parent)
            yield from self._libc_problems(parent)
            for name in parent.needed:
                if is_c_library(name):
                    continue
                found = self.find(name, parent)
                if found is None:
                    yield f"{_by(library, parent)} needs {name}, which is missing"
                    continue
                yield from self._version_problems(_by(library, parent), parent, name, found)
                if found.path not in seen:
                    seen.add(found.path)
                    queue.append(found)
        if self.image.kind == "musl":
            yield from self._symbol_problems(library, loaded)

    def _version_problems(
        self, by: str, parent: Library, name: str, found: Library
    ) -> Iterator[str]:
        """Yield missing symbol versions; the loader requires none of a library that has none."""
        if not found.defines or self.image.kind != "glibc":
            return
        for version in parent.needs.get(name, ()):
            if version not in found.defines:
                yield f"{by} needs {version} of {name}, which {found.path} does not have"

    def _libc_problems(self, parent: Library) -> Iterator[str]:
        if self.image.kind == "none":
            yield "the image has no C library for this machine"
        if self.image.kind != "glibc":
            return
        needs = parent.needs.items()
        wanted = c_version(v for file, vs in needs if is_c_library(file) for v in vs)
        if wanted > self.image.version:
            has = dotted(self.image.version)
            yield f"{_file(parent)} needs GLIBC_{dotted(wanted)}, and the image has {has}"

    def _symbol_problems(self, library: Library, loaded: list[Library]) -> Iterator[str]:
        """Yield missing functions: musl has no symbol versions, but lacks some of glibc's."""
        offered: set[str] = set()
        wanted: set[str] = set()
        for member in [*loaded, *filter(None, [self.image.libc])]:
            try:
                mine, theirs = symbols(member.path, self._tree(member))
            except (OSError, NotALibraryError):
                return  # without all symbols the result is not certain
            offered |= theirs
            if member is not self.image.libc:
                wanted |= mine
        missing = sorted(wanted - offered)
        if missing:
            yield (
                f"{_file(library)} is built for glibc, the image has musl, which lacks"
                f" {len(missing)} of the functions it needs ({missing[0]})"
            )

    def unversioned(self, subject: str) -> str:
        """Check that a library is found without its version, as programs load it at run time."""
        if self.find(subject):
            return ""
        stem = subject.partition(".so")[0]
        there = self.image.versions_of(stem)
        if not there:
            return f"{subject} is not in this container"
        return (
            f"{subject} is not in this container, only {', '.join(there)}: a link without the"
            f" version is missing (make it in the image: ln -s {there[0]} {subject})"
        )

    def major(self, subject: str) -> str:
        """Return why the image's library lacks the major version after `.so.`; "" if not."""
        stem, _so, version = subject.partition(".so.")
        majors = {numbers(name.partition(".so.")[2])[:1] for name in self.image.versions_of(stem)}
        majors.discard(())
        wanted = numbers(version)[:1]
        if not majors or wanted in majors:
            return ""
        has = ", ".join(dotted(major) for major in sorted(majors))
        return f"built for {stem} {dotted(wanted)}, and the image has {stem} {has}"

    def mpi(self, subject: str) -> str:
        """Check that `subject`, PMIx or PMI2, can start one of the container's MPIs, if any."""
        found = {name: library for name in _MPICH + _OPEN_MPI if (library := self.find(name))}
        problems = [
            self._unsupported_mpi(name, library, subject) for name, library in found.items()
        ]
        return problems[0] if problems and all(problems) else ""

    def _unsupported_mpi(self, name: str, library: Library, subject: str) -> str:
        below = [self.find(part, library) for part in library.needed if part.startswith(_BELOW)]
        parts = filter(None, (library, *below))
        contents = [self._tree(part).content(part.path, _MOST_OF_LIBRARY) for part in parts]
        if not all(contents):
            return ""
        place = self._origin(library)
        has_components = any(self.image.entries(f"{place}/{part}") for part in _COMPONENTS)
        content = b"\0".join(contents)
        return unsupported(name, subject, content.__contains__, has_components=has_components)

    def libc(self, subject: str) -> str:
        if self.image.kind == subject:
            return ""
        has = "no C library" if self.image.kind == "none" else self.image.kind
        return f"works only in images with {subject}, and this one has {has}"

    def file(self, subject: str) -> str:
        return "" if self.image.has(subject) else f"'{subject}' is not in this container"

    def program(self, subject: str) -> str:
        places = [subject] if "/" in subject else [f"{d}/{subject}" for d in self._path.split(":")]
        there = any(self.image.has(place) for place in places)
        return "" if there else f"the program {subject} is not in this container"

    def checks(self) -> dict[str, Callable[[str], str]]:
        """Return the checks by their kind in a hook's file."""
        return {
            "loadable": self.loadable,
            "unversioned": self.unversioned,
            "major": self.major,
            "mpi": self.mpi,
            "libc": self.libc,
            "file": self.file,
            "program": self.program,
        }


def _file(library: Library) -> str:
    return os.path.basename(library.path)


def _by(library: Library, parent: Library) -> str:
    return "it" if parent is library else _file(parent)
