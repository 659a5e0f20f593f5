"""The libraries that CDI devices bring into a container: the names that the loader has to know.

A file of the vendor's lists libraries by the names of their files. Programs ask for others: the
soname, and some names without a version. Each name becomes an entry of the loader's cache, and a
path beside the library, where programs look for a file (Triton, and linkers).
"""

from __future__ import annotations

import os

from container_engine.node.libraries.names import file_version, is_runtime
from container_engine.node.pattern import matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from container_engine.node.libraries.image import Image

_LIBRARY_FILE = "lib*.so*"
_CUDA = "libcuda.so"
# where images have a driver's libraries for newer versions of CUDA than the node's driver has
_COMPAT = "/usr/local/cuda/compat"
# file systems that the runtime mounts later
_OF_RUNTIME = ("/dev/", "/proc/", "/sys/")


class Brought:
    """The files that CDI devices bring. `targets` are those of their mounts.

    `searched` are directories that the devices want to be searched, `requested` maps symlinks to
    their targets. `names` are the results for the loader, and `links` those that the container
    lacks: pairs of a file of the node and a path in the container.
    """

    def __init__(
        self,
        image: Image,
        targets: Sequence[str],
        searched: Sequence[str],
        requested: Mapping[str, str],
    ) -> None:
        self._image = image
        self.names: dict[str, str] = {}
        self.links: list[tuple[str, str]] = []
        self._sources: dict[str, str] = {}
        self._driver: tuple[int, ...] = ()
        mounted = [d for d in searched if image.mounts.locate(d)[0]]
        inside = [path for d in mounted for path in image.entries(f"{d}/{_LIBRARY_FILE}")]
        files = list(dict.fromkeys([*targets, *inside]))
        for path in files:
            self._add(path)
        for path in files:
            self._add_soname(path)
        for link, target in requested.items():
            self._add_link(link, os.path.normpath(os.path.join(os.path.dirname(link), target)))

    def _add(self, path: str) -> None:
        on_node, source = self._image.mounts.locate(path)
        if on_node:
            self._sources[path] = source
        name = os.path.basename(path)
        if not matches(name, _LIBRARY_FILE) or is_runtime(name) or not self._image.read(path):
            return
        self.names.setdefault(name, path)
        version = file_version(name)
        if name.startswith(f"{_CUDA}.") and len(version) > 1:
            self._driver = version

    def _add_soname(self, path: str) -> None:
        library = self._image.read(path) if path in self.names.values() else None
        if library and library.soname and "/" not in library.soname:
            link = f"{os.path.dirname(path)}/{library.soname}"
            self._add_link(link, path)

    def _add_link(self, link: str, target: str) -> None:
        """Add a further name for a file of a device; all others are the image's business."""
        if target not in self._sources or link.startswith(_OF_RUNTIME):
            return
        if link not in self._sources:
            self._sources[link] = self._sources[target]
            self.links.append((self._sources[link], link))
        if target in self.names.values() and matches(os.path.basename(link), _LIBRARY_FILE):
            self.names.setdefault(os.path.basename(link), link)

    def newer_than_driver(self) -> Mapping[str, str]:
        """Return the image's own libraries of a newer driver, which CUDA uses with an older one.

        NVIDIA's hook enable-cuda-compat decides by the same numbers, the first of the versions.
        """
        files = list(self._image.entries(f"{_COMPAT}/{_CUDA}.*.*"))
        newest = max((file_version(os.path.basename(path)) for path in files), default=())
        if not self._driver or newest[:1] <= self._driver[:1]:
            return {}
        return dict(self._compat())

    def _compat(self) -> Iterator[tuple[str, str]]:
        for path in self._image.entries(f"{_COMPAT}/{_LIBRARY_FILE}"):
            library = self._image.read(path)
            if library:
                yield library.soname or os.path.basename(path), path
