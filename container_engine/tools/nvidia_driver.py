"""Find the files of NVIDIA's driver on a node: libraries, programs, firmware, sockets, settings.

Directories of all distributions come first, then those that only the loader's cache of the node
knows. Paths are those on the node, without the substitute for / below which they are looked up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from container_engine.base.errors import UserError
from container_engine.node.libraries.loader_cache import Cache
from container_engine.node.libraries.search import CACHE, MACHINES, MOST_OF_CACHE, TRIPLES
from container_engine.node.libraries.trees import ImageTree
from container_engine.node.pattern import matches

if TYPE_CHECKING:
    from container_engine.oci.cdi import Mount

_FOR_READING = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_FOR_TALKING = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
_PROGRAMS = (
    *("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-imex", "nvidia-imex-ctl"),
    *("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
)
_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_USUAL = "/usr/bin"
# made by daemons, with the other place of the first two on nodes whose /var/run is a directory
_TALKING = (
    *("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket", "/tmp/nvidia-mps"),
    *("/var/run/nvidia-persistenced/socket", "/var/run/nvidia-fabricmanager/socket"),
)
# names that programs ask for and some installers leave out, with what they lead to
_LINKS = (
    ("libcuda.so", "libcuda.so.{version}"),
    ("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.{version}"),
    ("libnvidia-vulkan-producer.so", "libnvidia-vulkan-producer.so.{version}"),
    ("libGLX_indirect.so.0", "libGLX_nvidia.so.{version}"),
    ("gbm/nvidia-drm_gbm.so", "libnvidia-allocator.so.{version}"),
)
# settings that tell EGL, Vulkan, OpenCL and OptiX of the driver: where loaders of images look
_SETTINGS = (
    ("/usr/share", "glvnd/egl_vendor.d/10_nvidia.json"),
    ("/usr/share", "egl/egl_external_platform.d/15_nvidia_gbm.json"),
    ("/usr/share", "egl/egl_external_platform.d/10_nvidia_wayland.json"),
    ("/usr/share", "egl/egl_external_platform.d/09_nvidia_wayland2.json"),
    ("/usr/share", "egl/egl_external_platform.d/20_nvidia_xcb.json"),
    ("/usr/share", "egl/egl_external_platform.d/20_nvidia_xlib.json"),
    ("/usr/share", "nvidia/nvoptix.bin"),
    ("/etc", "OpenCL/vendors/nvidia.icd"),
    ("/etc", "vulkan/icd.d/nvidia_icd.json"),
    ("/etc", "vulkan/icd.d/nvidia_icd.{machine}.json"),
    ("/etc", "vulkan/icd.d/nvidia_layers.json"),
    ("/etc", "vulkan/implicit_layer.d/nvidia_layers.json"),
)
_SETTINGS_FROM = ("/etc", "/usr/local/share", "/usr/share")
# of NVIDIA's container tools, not of the driver
_NOT_DRIVERS = "libnvidia-container*"
_VERSION = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+)?")
_MOST_OF_SCRIPT = 64 << 10


class Driver:
    """The driver of the node below `root`. `warnings` are about what is left out.

    Raise UserError if there is no driver.
    """

    def __init__(self, root: str) -> None:
        self._tree = ImageTree(root or "/")
        self._machine = os.uname().machine
        self.warnings: list[str] = []
        self._directories = self._library_directories()
        found = self._versions()
        if not found:
            places = ", ".join(self._fixed_directories())
            raise UserError(
                f"cdi: libcuda.so.1 is in none of {places} of this node, nor in a directory that"
                f" {CACHE} knows",
                "install the driver's libraries for computing, or run ldconfig once they are there",
                see="cdi-file",
            )
        running = self._running_version()
        self.version = running if running in found else next(iter(found))
        self._others = [version for version in found if version != self.version]
        self._found = self._libraries()
        if running not in ("", self.version):
            self.warnings.append(
                f"the kernel runs version {running} of the driver, and the libraries on this node"
                f" have version {self.version}: nothing will find a GPU until both are the same"
            )

    def mounts(self) -> list[Mount]:
        """Return the mounts of all files that there are."""
        pairs = [
            *((path, path) for path in self._found.values()),
            *self._links(),
            *self._programs(),
            *self._firmware(),
            *self._settings(),
        ]
        talking = {self._tree.real(path): path for path in _TALKING if self._is_there(path)}
        return [
            *(_mount(source, target, _FOR_READING) for source, target in pairs),
            *(_mount(path, path, _FOR_TALKING) for path in talking.values()),
        ]

    # ---- where and which ---------------------------------------------------------------------

    def _fixed_directories(self) -> list[str]:
        triple = TRIPLES.get(MACHINES.get(self._machine, 0), f"{self._machine}-linux-gnu")
        own = (f"/usr/lib/{triple}", "/usr/lib64", "/usr/lib")
        older = (f"/lib/{triple}", "/lib64")
        return [*own, f"/usr/lib/{triple}/nvidia/current", *older]

    def _library_directories(self) -> list[str]:
        """Return directories that may have libraries of the driver, each under one path."""
        machine = MACHINES.get(self._machine, 0)
        cache = Cache(self._tree.content(CACHE, MOST_OF_CACHE), machine)
        names = [*cache.names("libcuda.so"), *cache.names("libnvidia-")]
        cached = [os.path.dirname(path) for name in names for path in cache.find(name)]
        by_place: dict[str, str] = {}
        for directory in (*self._fixed_directories(), *cached):
            by_place.setdefault(self._tree.real(directory), directory)
        return list(by_place.values())

    def _versions(self) -> dict[str, None]:
        """Return the versions of the driver's main libraries, in the order of the directories."""
        found: dict[str, None] = {}
        for stem in ("libcuda.so.", "libnvidia-ml.so."):
            for directory in self._directories:
                paths = (f"{directory}/{n}" for n in self._names(directory) if n.startswith(stem))
                files = (os.path.basename(self._tree.real(p)) for p in paths if self._is_there(p))
                found |= dict.fromkeys(file.rpartition(".so.")[2] for file in files)
        return {version: None for version in found if "." in version} or found

    def _running_version(self) -> str:
        said = self._text("/sys/module/nvidia/version") or self._text("/proc/driver/nvidia/version")
        version = _VERSION.search(said)
        return version[0] if version else ""

    def _is_drivers(self, path: str) -> bool:
        """Check whether a library is the driver's, by its file's name.

        Most end with the driver's version; some have versions of their own and are known by name.
        """
        file = os.path.basename(self._tree.real(path))
        if any(file.endswith(f".so.{version}") for version in self._others):
            return False
        if "." in self.version and file.endswith(f".so.{self.version}"):
            return True
        is_known = file.startswith(("libcuda.so", "libnvidia-"))
        return is_known and not matches(file, _NOT_DRIVERS)

    # ---- what --------------------------------------------------------------------------------

    def _libraries(self) -> dict[str, str]:
        """Return the paths of the driver's libraries by all of their names.

        Of equal names it is the first directory's.
        """
        found: dict[str, str] = {}
        for directory in self._directories:
            for below in ("", "vdpau/"):
                for name in self._names(f"{directory}/{below}".rstrip("/")):
                    path = f"{directory}/{below}{name}"
                    is_new = ".so" in name and f"{below}{name}" not in found
                    if is_new and self._is_drivers(path) and self._is_there(path):
                        found[f"{below}{name}"] = path
        return found

    def _links(self) -> Iterator[tuple[str, str]]:
        """Yield the names that are not on the node."""
        for link, target in _LINKS:
            source = self._found.get(target.format(version=self.version))
            if source and link not in self._found:
                yield source, f"{os.path.dirname(source)}/{link}"

    def _programs(self) -> Iterator[tuple[str, str]]:
        """Yield the driver's programs, never a script that runs one from somewhere else."""
        real = {os.path.dirname(self._tree.real(path)): None for path in self._found.values()}
        beside = [os.path.normpath(f"{directory}/../bin") for directory in real]
        for name in _PROGRAMS:
            known = [f"{directory}/{name}" for directory in _PATH]
            scripts = [path for path in known if self._is_there(path) and not self._is_elf(path)]
            named = [path for script in scripts for path in self._run_by(script, name)]
            places = [*known, *named, *(f"{directory}/{name}" for directory in beside)]
            program = next(filter(self._is_elf, places), None)
            if program is None:
                self.warnings += [
                    f"{script} is left out: it is a script, and the program that it runs was not"
                    " found"
                    for script in scripts[:1]
                ]
                continue
            in_path = os.path.dirname(program) in _PATH
            yield program, program if in_path else (*scripts, f"{_USUAL}/{name}")[0]

    def _run_by(self, script: str, name: str) -> list[str]:
        """Return the absolute paths of a program of this name that a script contains."""
        return re.findall(rf"/[\w./+-]*/{re.escape(name)}(?![\w.-])", self._text(script))

    def _firmware(self) -> Iterator[tuple[str, str]]:
        release = os.uname().release
        places = (
            self._text("/sys/module/firmware_class/parameters/path").strip(),
            *(f"/lib/firmware/updates/{release}", "/lib/firmware/updates"),
            *(f"/lib/firmware/{release}", "/lib/firmware"),
        )
        for place in filter(None, places):
            directory = f"{place}/nvidia/{self.version}"
            names = [name for name in self._names(directory) if matches(name, "gsp*.bin")]
            if names:
                yield from ((f"{directory}/{name}", f"{directory}/{name}") for name in names)
                return

    def _settings(self) -> Iterator[tuple[str, str]]:
        for top, pattern in _SETTINGS:
            name = pattern.format(machine=self._machine)
            places = [f"{directory}/{name}" for directory in _SETTINGS_FROM]
            yield from (
                (path, f"{top}/{name}") for path in list(filter(self._is_there, places))[:1]
            )

    # ---- files -------------------------------------------------------------------------------

    def _names(self, directory: str) -> Sequence[str]:
        try:
            return sorted(self._tree.names(directory))
        except OSError:
            return ()

    def _is_there(self, path: str) -> bool:
        """Check that a path leads to something, which a dangling symlink does not."""
        return self._tree.has(self._tree.real(path))

    def _is_elf(self, path: str) -> bool:
        return self._begin(path, 4) == b"\x7fELF"

    def _text(self, path: str) -> str:
        return self._begin(path, _MOST_OF_SCRIPT).decode("utf-8", "replace")

    def _begin(self, path: str, most: int) -> bytes:
        try:
            with open(self._tree.open(path), "rb") as file:
                return file.read(most)
        except OSError:
            return b""


def _mount(source: str, target: str, options: Sequence[str]) -> Mount:
    return {"hostPath": source, "containerPath": target, "options": list(options)}
