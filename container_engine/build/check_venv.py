"""Check whether a virtual environment starts in a container, without running anything in it.

It is a program of its own: it mounts the image, in namespaces that end with it (`OWN_NAMESPACES`).
The request and the answer are JSON.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from container_engine.base.mounts import is_in
from container_engine.edf.names import VENV_MARKS
from container_engine.node.libraries import elf
from container_engine.node.libraries.elf import Library, NotALibraryError, c_version, dotted
from container_engine.node.libraries.preflight import LoaderView
from container_engine.node.libraries.search import MACHINES, Host, Image
from container_engine.node.libraries.trees import ImageTree, Tree

# programs of which an image has one, and whose file says for which processor it is
_PROGRAMS = ("/bin/sh", "/usr/bin/env", "/bin/busybox")
_SHARED = re.compile(r"\.so(\.|$)")
# the interpreter loads these for `import`; other libraries may be meant for other hosts
_EXTENSION = re.compile(r"\.(cpython-\d+t?-.*|abi3)\.so$")
_VERSION = re.compile(r"(?:.*/)?python(\d+\.\d+t?)")
# the first line of a script, or its second if the path is long or has blanks
SHEBANG = re.compile(rb"#!(?:/bin/sh\n'''exec' \"?)?(/[^\"\n]*)/bin/(python[^\s\"/]*)")
ACTIVATE = re.compile(rb"(?m)^(\s*(?:export )?VIRTUAL_ENV=)(['\"]?)(/[^'\"\n]*)\2$")
_HEAD, _MOST = 1024, 1 << 20
_CONFIG = VENV_MARKS["virtual"]
# where an image's Python has packages: its prefix and version are put in
_PACKAGES = (
    *("{0}/lib/python{1}/site-packages", "{0}/lib64/python{1}/site-packages"),
    *("{0}/lib/python3/dist-packages", "/usr/local/lib/python{1}/dist-packages"),
)
# without those of an extra or of another platform, which have a condition
_REQUIRED = re.compile(r"(?m)^Requires-Dist: *([A-Za-z0-9._-]+)[^;\n]*$")
# libraries of a GPU's driver, which come from the node, and Python's own, which is loaded by then
_FROM_ELSEWHERE = ("libcuda.", "libnvidia-", "libnvcuvid.", "libhsa-runtime64.", "libpython")
_AGAIN = "make it again with the image's own Python: srun -N1 --environment=NAME python3 -m venv "
_CONDA_AGAIN = "conda's packages need glibc: use an image that has it, in a newer version"


class Finding(NamedTuple):
    """A reason why something does not start, and a remedy."""

    message: str
    hint: str


class Container:
    """The files of a container, read from outside. `binds` are targets and their sources."""

    def __init__(self, rootfs: str, binds: Sequence[tuple[str, str]], library_path: str) -> None:
        tree = ImageTree(rootfs)
        host = Host(_machine(tree))
        self._unknown = [target for target, source in binds if not os.path.exists(source)]
        known = [bind for bind in binds if bind[0] not in self._unknown]
        self.node = host.tree
        self.image = Image(host, tree, library_path, known)
        self.loader = LoaderView(self.image, host, {}, {}, "")
        self._libraries: dict[str, Library | None] = {}

    def locate(self, path: str) -> tuple[Tree, str]:
        """Return where the file is: the tree that has it, and its path there."""
        on_node, where = self.image.mounts.locate(path)
        return (self.node, where) if on_node else (self.image.tree, self.image.tree.real(where))

    def has(self, path: str) -> bool:
        """Check whether a path is there; what only nodes have counts as such."""
        tree, where = self.locate(path)
        return tree.has(where) or any(is_in(where, target) for target in self._unknown)

    def names(self, directory: str) -> list[str]:
        on_node, where = self.image.mounts.directory(directory)
        return _names(self.node if on_node else self.image.tree, where)

    def library(self, path: str) -> Library | None:
        """Return the library, for whatever processor, or None for another file."""
        if path not in self._libraries:
            tree, where = self.locate(path)
            try:
                self._libraries[path] = elf.read(where, tree)
            except (OSError, NotALibraryError):
                self._libraries[path] = None
        return self._libraries[path]


def _machine(tree: Tree) -> int:
    for path in _PROGRAMS:
        try:
            return elf.read(path, tree).machine
        except (OSError, NotALibraryError):
            continue
    return MACHINES.get(os.uname().machine, 0)


class Files(NamedTuple):
    """The files of a virtual environment, below it, of the kinds that are looked at."""

    libraries: list[str]
    links: list[str]
    path_files: list[str]
    urls: list[str]
    scripts: list[str]


def files_in(directory: str) -> Files:
    """Find them without asking a file server for more than the names of each directory."""
    found = Files([], [], [], [], [])
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            entries = list(os.scandir(f"{directory}/{below}"))
        except OSError:
            continue
        for entry in entries:
            path = f"{below}/{entry.name}".lstrip("/")
            if entry.is_symlink():
                found.links.append(path)
            elif entry.is_dir():
                waiting.append(path)
            elif _SHARED.search(entry.name):
                found.libraries.append(path)
            elif entry.name.endswith(".pth"):
                found.path_files.append(path)
            elif entry.name == "direct_url.json":
                found.urls.append(path)
            elif below == "bin":
                found.scripts.append(path)
    return found


class Check:
    """A check of the virtual or conda environment that is at `target` in the container."""

    def __init__(self, container: Container, target: str, place: str) -> None:
        self._container = container
        self._target = target
        self._place = place
        self._is_conda = os.path.isdir(f"{place}/{VENV_MARKS['conda']}")
        self._again = _CONDA_AGAIN if self._is_conda else f"{_AGAIN}{target}"
        self._files = files_in(place)
        self.python = self.version = ""

    def _read(self, path: str, most: int = _MOST) -> bytes:
        try:
            with open(f"{self._place}/{path}", "rb") as file:
                return file.read(most)
        except OSError:
            return b""

    def refusals(self) -> Iterator[Finding]:
        """Yield what certainly does not start."""
        yield from self._interpreter()
        yield from self._links()
        yield from self._editable()
        yield from self._libraries(is_certain=True)
        yield from self._missing(is_certain=True)

    def _interpreter(self) -> Iterator[Finding]:
        again = self._again
        if self._is_conda and not os.path.lexists(f"{self._place}/bin/python3"):
            return  # of programs in other languages
        tree, where = self._container.locate(f"{self._target}/bin/python3")
        made = sorted(filter(None, map(_version_of, self._names("lib"))))
        if not self._container.has(f"{self._target}/bin/python3"):
            what = "uv's own Python " if "/uv/python/" in where else ""
            message = f"its interpreter is {what}{where}, in neither the image nor a mount"
            yield Finding(message, again)
            return
        if tree is self._container.node:
            yield from self._unloadable_interpreter()
        is_copy = where == f"{self._place}/bin/{os.path.basename(where)}"
        self.python = f"{self._target}/bin/python3" if is_copy else where
        self.version = made[-1] if is_copy and made else _version_of(where)
        if not self.version:
            above = os.path.dirname(os.path.dirname(where))
            near = [name for name in _names(tree, f"{above}/lib") if _version_of(name)]
            self.version = _version_of(near[0]) if len(near) == 1 else ""
        if made and self.version and self.version not in made:
            message = (
                f"its packages are for Python {', '.join(made)}, and {where} is {self.version}"
            )
            yield Finding(message, again)
        elif is_copy and not self._has_standard_library():
            message = f"its interpreter is a copy of a Python {self.version} that the image lacks"
            yield Finding(message, again)

    def _unloadable_interpreter(self) -> Iterator[Finding]:
        path = f"{self._target}/bin/python3"
        library = self._container.library(path)
        found = None if library is None else self._unloadable("bin/python3", library)
        if found is not None:
            yield found._replace(message=f"bin/python3 {found.message}")
        elif library is not None and (why := self._container.loader.loadable(path)):
            yield Finding(why, self._again)

    def _names(self, below: str) -> list[str]:
        return _names(self._container.node, f"{self._place}/{below}")

    def _has_standard_library(self) -> bool:
        home = re.search(rb"(?m)^home *= *(.*?)\s*$", self._read(_CONFIG))
        prefixes = (
            self._target,
            "/usr",
            "/usr/local",
            *([os.path.dirname(os.fsdecode(home[1]))] if home else ()),
        )
        places = (f"{prefix}/{lib}" for prefix in prefixes for lib in ("lib", "lib64"))
        return any(self._container.has(f"{one}/python{self.version}/os.py") for one in places)

    def _links(self) -> Iterator[Finding]:
        lost = [
            path
            for path in self._files.links
            if not re.fullmatch(r"bin/python[\d.]*t?|bin/𝜋thon", path)
            and not self._container.has(f"{self._target}/{path}")
        ]
        if lost:
            where = self._container.locate(f"{self._target}/{lost[0]}")[1]
            message = f"{_and_more(lost)} leads to {where}, in neither the image nor a mount"
            yield Finding(message, "uv pip install --link-mode copy makes files of such links")

    def _editable(self) -> Iterator[Finding]:
        lost: list[str] = []
        for path in self._files.urls:
            said = _editable_place(self._read(path))
            if said and not self._container.has(said):
                lost.append(said)
        for path in self._files.path_files:
            site = os.path.dirname(f"{self._target}/{path}")
            for line in self._read(path).decode("utf-8", "replace").splitlines():
                if not line.strip() or line.startswith(("#", "import ", "import\t")):
                    continue
                said = os.path.normpath(os.path.join(site, line.rstrip()))
                is_new = not any(is_in(said, one) for one in lost)
                if is_new and not self._container.has(said) and not self._is_moved(said):
                    lost.append(said)
        for place in lost:
            message = f"an editable install is in '{place}', in neither the image nor a mount"
            yield Finding(message, f'add "{place}" to mounts, or pip install it without -e')

    def _is_moved(self, path: str) -> bool:
        return any(is_in(path, prefix) for prefix in self.moved())

    def _libraries(self, *, is_certain: bool) -> Iterator[Finding]:
        """Yield what keeps libraries from loading, the first file and the number of others.

        It is certain that a module is loaded, and what other libraries need; the rest may be meant
        for other hosts.
        """
        there = [
            (path, library)
            for path in self._files.libraries
            if (library := self._container.library(f"{self._target}/{path}")) is not None
        ]
        needed = {name for _path, library in there for name in library.needed}
        found: dict[Finding, list[str]] = {}
        for path, library in there:
            is_used = bool(_EXTENSION.search(path)) or os.path.basename(path) in needed
            if is_used == is_certain and (why := self._unloadable(path, library)):
                found.setdefault(why, []).append(path)
        for why, paths in found.items():
            yield Finding(f"{_and_more(paths)} {why.message}", why.hint)

    def _unloadable(self, path: str, library: Library) -> Finding | None:
        image = self._container.image
        is_imported = bool(_EXTENSION.search(path)) or path.startswith("bin/")
        if library.machine != image.machine:
            names = {number: name for name, number in MACHINES.items()}
            theirs, ours = (names.get(one, "another") for one in (library.machine, image.machine))
            message = f"is for {theirs} processors, and the image is for {ours}"
            return (
                Finding(message, "install its packages where the image runs")
                if is_imported
                else None
            )
        kinds = {"libc.so.6": "glibc", **{one: "musl" for one in library.needed if "musl" in one}}
        built = next((kinds[name] for name in library.needed if name in kinds), image.kind)
        if built != image.kind and is_imported:
            message = f"is built for {built}, and the image has {image.kind}"
            return Finding(message, self._again)
        needs = library.needs.items()
        wanted = c_version(one for name, all_ in needs if elf.is_c_library(name) for one in all_)
        if image.kind == "glibc" and wanted > image.version:
            has = dotted(image.version)
            message = f"needs GLIBC_{dotted(wanted)}, and the image has {has}"
            return Finding(message, "install an older release of it, or use a newer image")
        for name, versions in library.needs.items():
            runtime = self._container.loader.find(name, library) if name in library.needed else None
            lacking = [one for one in versions if runtime and one not in runtime.defines]
            if runtime and runtime.defines and lacking:
                message = f"needs {lacking[-1]} of {name}, which {runtime.path} lacks"
                return Finding(message, "compile it in the container, or use a newer image")
        return None

    def warnings(self) -> Iterator[Finding]:
        """Yield libraries that the image lacks; a hook, or another package, may provide them."""
        yield from self._libraries(is_certain=False)
        yield from self._missing(is_certain=False)
        if re.search(rb"(?mi)^include-system-site-packages *= *true", self._read(_CONFIG)):
            yield from self._missing_packages()

    def _missing_packages(self) -> Iterator[Finding]:
        """Yield packages that it takes from its Python's, and the image's Python has not."""
        own = f"{self._target}/lib/python{self.version}/site-packages"
        prefix = os.path.dirname(os.path.dirname(self.python))
        places = (own, *(place.format(prefix, self.version) for place in _PACKAGES))
        there = {_project(name) for place in places for name in self._container.names(place)}
        lost: dict[str, str] = {}
        for info in self._container.names(own):
            path = f"{own}/{info}/METADATA"[len(self._target) + 1 :]
            head = self._read(path).decode("utf-8", "replace").partition("\n\n")[0]
            for name in _REQUIRED.findall(head) if info.endswith(".dist-info") else ():
                if _project(name) not in there:
                    lost.setdefault(name, info.partition("-")[0])
        for name, by in lost.items():
            message = f"{by} needs the package {name}, in neither it nor the image"
            yield Finding(message, f"install {name} into it, in a container of the image")

    def _missing(self, *, is_certain: bool) -> Iterator[Finding]:
        own = {os.path.basename(path) for path in (*self._files.libraries, *self._files.links)}
        lost: dict[str, list[str]] = {}
        for path in self._files.libraries:
            library = self._container.library(f"{self._target}/{path}")
            if library is None or library.machine != self._container.image.machine:
                continue
            for name in library.needed:
                # every image for compiled programs has these, and no hook brings them
                is_plain = elf.is_runtime(name) and bool(_EXTENSION.search(path))
                is_known = name in own or elf.is_c_library(name) or name.startswith(_FROM_ELSEWHERE)
                if is_plain != is_certain or is_known:
                    continue
                if self._container.loader.find(name, library) is None:
                    lost.setdefault(name, []).append(path)
        for name, paths in lost.items():
            message = f"{_and_more(paths)} needs {name}, in neither it nor the image"
            yield Finding(message, f"use an image that has {name}, or install a package with it")

    def moved(self) -> dict[str, str]:
        """Return where its scripts say it is and the container has nothing, each with a script."""
        found: dict[str, str] = {}
        for path in self._files.scripts:
            content = self._read(path, _HEAD if not path.endswith("activate") else _MOST)
            for match in (SHEBANG.match(content), ACTIVATE.search(content)):
                if match is None:
                    continue
                prefix = os.fsdecode(match[3] if match.re is ACTIVATE else match[1])
                program = _CONFIG if match.re is ACTIVATE else f"bin/{os.fsdecode(match[2])}"
                if not self._container.has(f"{prefix}/{program}"):
                    found[prefix] = path if match.re is ACTIVATE else found.get(prefix, path)
        return found


def _version_of(name: str) -> str:
    match = _VERSION.fullmatch(name)
    return match[1] if match else ""


def _project(name: str) -> str:
    """Return the name of a project, or of a file that says what is installed, to compare it."""
    if name.endswith((".dist-info", ".egg-info")):
        name = name.partition("-")[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def _names(tree: Tree, directory: str) -> list[str]:
    try:
        return tree.names(directory)
    except OSError:
        return []


def _and_more(paths: Sequence[str]) -> str:
    return paths[0] + (f" (and {len(paths) - 1} more)" if len(paths) > 1 else "")


def _editable_place(document: bytes) -> str:
    """Return the directory of an editable install as direct_url.json names it, "" for none."""
    from urllib.parse import unquote

    try:
        found = json.loads(document)
        is_editable = found["dir_info"]["editable"] is True
        url = str(found["url"])
    except (ValueError, KeyError, TypeError):
        return ""
    return unquote(url[len("file://") :]) if is_editable and url.startswith("file:///") else ""


def answer(request: Mapping[str, object], rootfs: str, binds: Sequence[tuple[str, str]]) -> str:
    """Return the answer, JSON, to a request whose files are mounted."""
    target = str(request["target"])
    container = Container(rootfs, binds, str(request["library_path"]))
    check = Check(container, target, container.image.mounts.directory(target)[1])
    found = {"refusals": list(check.refusals()), "warnings": list(check.warnings())}
    return json.dumps({**found, "version": check.version, "moved": check.moved()})


def main(argv: Sequence[str]) -> int:
    """Mount what the request in `argv[0]` names, below its `work`, and print the answer."""
    request = json.loads(argv[0])
    work, binds = request["work"], [tuple(bind) for bind in request["binds"]]
    images = [_mounted(request["server"], path, work) for path in request["images"]]
    rootfs = images[0]
    if len(images) > 1:
        rootfs = os.path.join(work, "all")
        os.mkdir(rootfs)
        options = f"lowerdir={':'.join(reversed(images))}"
        subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", rootfs], check=True)
    binds += [(at, _mounted(request["server"], path, work)) for at, path in request["packed"]]
    sys.stdout.write(answer(request, rootfs, binds))
    return 0


def _mounted(server: str, path: str, work: str) -> str:
    place = os.path.join(work, str(len(os.listdir(work))))
    os.mkdir(place)
    # the server stays, and would keep a pipe open
    nothing = subprocess.DEVNULL
    subprocess.run([server, path, place], check=True, stdin=nothing, stdout=nothing, stderr=nothing)
    return place
