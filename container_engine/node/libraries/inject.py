"""Look into the image for a launch's hooks; print operations for the guard (guard_inspect.c).

This runs as the user in the session's namespaces, after the overlay is mounted and before the
container is created. Files of the image are changed only in the overlay's upper layer.
"""

from __future__ import annotations

import os
import sys

from container_engine.node.libraries import recorded_look
from container_engine.node.libraries.choose import (
    BESIDE,
    OWN_DIRECTORY,
    Decider,
    Decision,
    RefusedError,
)
from container_engine.node.libraries.elf import file_version, is_runtime
from container_engine.node.libraries.preflight import LoaderView
from container_engine.node.libraries.search import CACHE, MACHINES, Host, Image
from container_engine.node.libraries.trees import ImageTree
from container_engine.node.pattern import matches
from container_engine.node.plan_json import parse_json, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any


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


_CONFIGURATIONS = "/etc/ld.so.conf.d"


def main(argv: Sequence[str]) -> int:
    """Run as inject REQUEST, which is a file written by hooks/run.py. Return the exit code."""
    with open(argv[0], encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    request = parse_json(text)
    try:
        work = _Work(request)
        work.run()
    except Exception as error:  # noqa: BLE001  # any error caused by an image's file is one line
        sys.stderr.write(f"cannot look into the image for hooks: {_one_line(error)}\n")
        return 1
    parts: list[str] = []
    for name, *arguments in work.operations:
        parts += [name, str(len(arguments)), *arguments]
    printed = "".join(part + "\0" for part in parts)
    sys.stdout.buffer.write(printed.encode("utf-8", "surrogateescape"))
    sys.stdout.flush()
    if request["answers"] and work.is_clean:
        recorded_look.record(request, text, work.asked, work.changes, work.operations)
    return 0


class _Work:
    """The work on one request. `operations` are for the guard, in order.

    `changes` were made to the image: paths of files with the new content, None for a removed file.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._request = request
        self._hooks: Sequence[Mapping[str, Any]] = request["hooks"]
        self._root: str = request["root"]
        self.operations: list[tuple[str, ...]] = []
        self.changes: list[tuple[str, bytes | None]] = []
        self._tree = ImageTree(self._root)
        self._host = Host(MACHINES.get(os.uname().machine, 0))
        self._binds = [(target, source) for source, target in request["binds"]]
        self._image = Image(self._host, self._tree, request["library_path"], self._binds)
        self._decider = Decider(self._host, self._image)
        self._search: dict[str, str] = {}
        self._errors: list[str] = []
        self._failed = False

    @property
    def is_clean(self) -> bool:
        """Check that another start would do the same: no failure, and no uncertain answer."""
        is_certain = self._tree.is_certain and self._host.tree.is_certain
        return is_certain and not self._errors and not self._failed

    @property
    def asked(self) -> Mapping[str, str]:
        """Return witnesses about all files on which the result depends, images included."""
        return {**self._request["images"], **self._host.tree.asked}

    def _note(self, **fields: object) -> None:
        self.operations.append(("note", to_json(fields)))

    def _record(self, hook: Mapping[str, Any], severity: str, text: str) -> None:
        line = f"hook {hook['name']}: {text}".replace("\n", " ")
        if severity == "fail":
            self._errors.append(line)
        else:
            self._note(warning=line)

    def run(self) -> None:
        if self._image.kind != "none":
            for hook in self._hooks:
                for libraries in hook["libraries"]:
                    for path in libraries["files"]:
                        self._inject(hook, path, libraries)
            for decision in self._decider.decisions.values():
                self._place(decision)
            for hook in self._hooks:
                self._make_known(hook)
            self._make_brought_known()
            self._tell_loader()
        self._check()
        if self._errors:
            self._note(error=self._errors[0], also=self._errors[1:])
        if self._request["explain"]:
            for decision in self._decider.decisions.values():
                self._note(decision=decision.described())

    # ---- libraries ---------------------------------------------------------------------------

    def _inject(self, hook: Mapping[str, Any], path: str, libraries: Mapping[str, Any]) -> None:
        try:
            self._decider.inject(hook["name"], path, libraries)
        except RefusedError as refusal:
            severity = next((c["severity"] for c in _checks(hook, "glibc")), "warn")
            self._record(hook, severity, f"{os.path.basename(path)} is left out: {refusal}")

    def _place(self, decision: Decision) -> None:
        if decision.library is None or not decision.is_from_node:
            return
        source = decision.library.path
        if decision.stays:
            self._hide(decision)
            self._search.update(dict.fromkeys(decision.names, decision.stays))
            return
        for place in decision.places:
            self.operations.append(("root-bind", source, self._root, place))
        if decision.lost:
            self._record(
                {"name": decision.hook},
                "warn",
                f"programs of the image that need {decision.lost[-1]} of {decision.name} will not"
                " start: the node's is older",
            )
        if decision.action == BESIDE or not self._image.first(decision.name):
            for name in decision.names:
                place = f"{OWN_DIRECTORY}/{name}"
                self.operations.append(("root-bind", source, self._root, place))
                self._search[name] = place

    def _hide(self, decision: Decision) -> None:
        """Remove the image's own files of a library that must be loaded from its own directory.

        If the library replaced them, $ORIGIN would make it search for its dependencies beside them.
        """
        for place in decision.places:
            try:
                self.changes.append((self._tree.remove(place), None))
            except OSError as error:
                self._failed = True
                text = f"cannot hide the image's {place} from the loader: {error.strerror}"
                self._record({"name": decision.hook}, "warn", text)

    def _make_known(self, hook: Mapping[str, Any]) -> None:
        """Add the libraries in directories or mounts of a hook to the loader's search."""
        searched = (f"{directory}/{_LIBRARY_FILE}" for directory in hook["search"])
        mounted = self._request["mounted"] if hook["refresh"] else ()
        for path in (*(path for some in searched for path in self._image.entries(some)), *mounted):
            name = os.path.basename(path)
            if matches(name, _LIBRARY_FILE) and not is_runtime(name):
                self._search.setdefault(name, path)

    # ---- CDI devices -------------------------------------------------------------------------

    def _make_brought_known(self) -> None:
        """Make the libraries that CDI devices bring known, with the links that belong to them."""
        request = self._request
        brought = Brought(self._image, request["brought"], request["searched"], request["links"])
        for source, place in brought.links:
            self.operations.append(("root-bind", source, self._root, place))
        self._search.update(brought.newer_than_driver())
        for name, path in brought.names.items():
            self._search.setdefault(name, path)

    # ---- the loader --------------------------------------------------------------------------

    def _tell_loader(self) -> None:
        """Make new libraries known: by the loader's cache, musl's search path, or a variable."""
        if not self._search:
            return
        directories = list(dict.fromkeys(map(os.path.dirname, self._search.values())))
        try:
            self._write_for_loader(directories)
        except OSError as error:
            self._failed = True
            # the image may have anything in the way; with the variable at least the tasks work
            before = self._request["library_path"]
            path = ":".join([*directories, before] if before else directories)
            self._note(env={"LD_LIBRARY_PATH": path})
            reason = f"{error.filename}: {error.strerror}"
            self._note(
                warning=f"hooks: libraries are found only through LD_LIBRARY_PATH ({reason})"
            )

    def _write_for_loader(self, directories: Sequence[str]) -> None:
        if self._image.kind == "musl":
            # after the image's own directories: libraries for glibc must not hide them
            known = [d for d in self._image.default_directories if d not in directories]
            text = "".join(f"{directory}\n" for directory in [*known, *directories])
            self._replace(self._image.musl_path, text.encode("utf-8", "surrogateescape"))
            return
        self._replace(CACHE, self._image.cache.with_entries(self._search))
        if self._tree.has(_CONFIGURATIONS):
            # for a user who runs ldconfig in the container
            text = "".join(f"{directory}\n" for directory in directories)
            self._replace(f"{_CONFIGURATIONS}/000-container-engine.conf", text.encode())

    def _replace(self, path: str, content: bytes) -> None:
        self.changes.append((self._tree.replace(path, content), content))

    # ---- pre-flight --------------------------------------------------------------------------

    def _check(self) -> None:
        if not any(hook["checks"] for hook in self._hooks):
            return
        decisions, path = self._decider.decisions, self._request["path"]
        view = LoaderView(self._image, self._host, decisions, self._search, path)
        known = view.checks()
        for hook in self._hooks:
            for check in hook["checks"]:
                find_problem = known.get(check["kind"])
                problem = find_problem(check["subject"]) if find_problem else ""
                if problem:
                    hint = f" ({check['hint']})" if check.get("hint") else ""
                    self._record(hook, check["severity"], f"{problem}{hint}")


def _checks(hook: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    return [check for check in hook["checks"] if check["kind"] == kind]


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
