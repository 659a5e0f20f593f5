"""Choose which of the node's libraries go into the container, and where.

A library that a hook names comes from the node. Of its dependencies, the newer of the node's and
the image's is taken, the image's if they are equal: each replacement affects the image's programs.
The newer one has more symbol versions, or else the higher number in its file's name.
"""

from __future__ import annotations

import os

from container_engine.node.libraries.elf import c_version, dotted, file_version, is_c_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from container_engine.node.libraries.elf import Library
    from container_engine.node.libraries.search import Host, Image

OWN_DIRECTORY = "/.container-engine/lib"
# the node's, over the image's files; the node's, in a directory of ours; the image's; in neither
REPLACE, BESIDE, KEEP, ABSENT = "replace", "beside", "keep", "absent"
_NEWER, _EQUAL, _OLDER, _UNLIKE = "newer than", "as new as", "older than", "different from"


class Decision:
    """The decision on one library.

    `names` are the names of the node's library if it is put into OWN_DIRECTORY, `places` are the
    image's files that it replaces. `stays` is its path in the container if it is not put anywhere
    because a mount shows it there, else "".
    """

    def __init__(
        self, hook: str, name: str, library: Library | None, action: str, reason: str
    ) -> None:
        self.hook, self.name, self.library = hook, name, library
        self.action, self.reason = action, reason
        self.names: Sequence[str] = (name,)
        self.places: Sequence[str] = ()
        # symbol versions that programs of the image may need and no longer find
        self.lost: Sequence[str] = ()
        self.stays = ""

    @property
    def is_from_node(self) -> bool:
        return self.action in (REPLACE, BESIDE)

    def described(self) -> dict[str, Any]:
        beside = [self.stays] if self.stays else [f"{OWN_DIRECTORY}/{name}" for name in self.names]
        return {
            "hook": self.hook,
            "library": self.name,
            "action": self.action,
            "source": self.library.path if self.library and self.is_from_node else "",
            "places": [*self.places, *(beside if self.stays or self.action == BESIDE else ())],
            "reason": self.reason,
        }


class RefusedError(Exception):
    """A library that cannot be used in this image; the text has the reason and the remedy."""


class Decider:
    """The decisions on libraries, made one after the other; earlier ones affect later ones."""

    def __init__(self, host: Host, image: Image) -> None:
        self._host = host
        self._image = image
        self.decisions: dict[str, Decision] = {}

    def inject(self, hook: str, path: str, edit: Mapping[str, Any]) -> None:
        """Add the decisions on one library of the node and its dependencies, as `edit` wants them.

        `edit` is a LibraryEdit of the plan. Raise RefusedError, without having added any.
        """
        library = self._host.read(path)
        if library is None:
            raise RefusedError(f"'{path}' of the node: {self._host.problem(path)}")
        root = self._root(hook, path, library, edit["place"])
        root.stays = path if edit.get("stay") and root.is_from_node else ""
        before = self.decisions.get(root.name)
        if before and before.is_from_node and before.library is library:
            # another name of the same file: patterns match its symlinks, too
            before.names = tuple(dict.fromkeys((*before.names, *root.names)))
            return
        found = {root.name: root}
        if edit["closure"] and not root.stays:
            self._close(root, found)
        for decision in found.values():
            if decision.is_from_node and decision.library:
                self._check_libc(decision.library)
        self.decisions.update(found)

    def _root(self, hook: str, path: str, library: Library, place: str) -> Decision:
        """Decide on the library that the hook names.

        With the `place` REPLACE it replaces all the image's files of its name, if that is safe.
        """
        file = os.path.basename(path)
        name = library.soname or file
        places = self._image.everywhere(name) if place == REPLACE else []
        decision = Decision(hook, name, library, BESIDE, "the hook names it")
        decision.names = tuple(dict.fromkeys((name, file)))
        other = self._image.read(places[0]) if places else None
        if other is None:
            if self._may_replace(library):
                decision.places = self._image.before_cache(name)
            return decision
        if not self._may_replace(library):
            decision.reason += "; the image's own is built for musl and is kept"
            return decision
        relation = compare(library, other)
        decision.action, decision.places = REPLACE, places
        decision.lost = [version for version in other.defines if version not in library.defines]
        decision.reason += f"; the node's is {relation} the image's {real_name(other)}"
        return decision

    def _may_replace(self, library: Library) -> bool:
        """Check that a library built for glibc would not replace one built for musl."""
        return self._image.kind == "glibc" or "libc.so.6" not in library.needed

    # ---- dependencies -----------------------------------------------------------------------

    def _close(self, root: Decision, found: dict[str, Decision]) -> None:
        """Decide on the dependencies of `root`, and add the decisions to `found`.

        This ends: a decision can only change from the image's library to the node's, because the
        required symbol versions only become more.
        """
        demands: dict[str, dict[str, None]] = {}
        queue = [root]
        while queue:
            parent = queue.pop(0)
            if parent.library is None:
                continue
            for name, library in self._host.dependencies(parent.library).items():
                wanted = demands.setdefault(name, {})
                wanted.update(dict.fromkeys(parent.library.needs.get(name, ())))
                before = found.get(name) or self.decisions.get(name)
                if before and before.is_from_node:
                    continue
                chosen = self._choose(parent, name, library, list(wanted))
                found[name] = chosen
                if chosen.is_from_node:
                    queue.append(chosen)

    def _choose(
        self, parent: Decision, name: str, library: Library | None, wanted: Sequence[str]
    ) -> Decision:
        place = self._image.first(name)
        other = self._image.read(place) if place else None

        def decision(action: str, reason: str) -> Decision:
            return Decision(parent.hook, name, library, action, f"{parent.name} needs it; {reason}")

        if other is None:
            if library is None:
                return decision(ABSENT, "neither node nor image has it")
            return decision(BESIDE, "the image does not have it")
        if library is None:
            return decision(KEEP, "the node does not have it")
        relation = compare(library, other)
        # the loader requires no symbol versions of a library that has none
        lacking = [v for v in wanted if v not in other.defines] if other.defines else []
        if relation == _NEWER and self._may_replace(library) and not self._libc_problem(library):
            chosen = decision(REPLACE, f"the node's is {relation} the image's {real_name(other)}")
            chosen.places = self._image.find(name)
            return chosen
        if lacking and self._image.kind == "glibc":
            raise RefusedError(
                f"{parent.name} of the node needs {lacking[0]} of {name}, which the image's"
                f" {real_name(other)} does not have, and the node's {real_name(library)} cannot"
                f" take its place ({self._libc_problem(library) or f'it is {relation} that'})"
            )
        return decision(KEEP, f"the node's is {relation} the image's {real_name(other)}")

    # ---- the C library -----------------------------------------------------------------------

    def _check_libc(self, library: Library) -> None:
        problem = self._libc_problem(library)
        if problem:
            raise RefusedError(
                f"{problem} (use an image with a newer distribution, or ask the administrator for"
                f" a build of {real_name(library)} for older ones)"
            )

    def _libc_problem(self, library: Library) -> str:
        """Return why this library cannot be loaded with the image's libc, or "" if it can."""
        libc = self._image.libc
        if self._image.kind != "glibc" or libc is None:
            return ""
        wanted = [
            v for file, versions in library.needs.items() if is_c_library(file) for v in versions
        ]
        newest, has = c_version(wanted), self._image.version
        if newest > has:
            return (
                f"the node's {real_name(library)} needs GLIBC_{dotted(newest)}, and the image"
                f" has glibc {dotted(has)}"
            )
        unknown = [v for v in wanted if v.startswith("GLIBC_ABI_") and v not in libc.defines]
        if unknown:
            return (
                f"the node's {real_name(library)} needs {unknown[0]}, which the image's libc lacks"
            )
        return ""


def real_name(library: Library) -> str:
    return os.path.basename(library.path)


def compare(ours: Library, other: Library) -> str:
    """Return how the node's library `ours` relates to another of the same name, in words."""
    mine, others = set(ours.defines), set(other.defines)
    if mine != others:
        if mine > others:
            return _NEWER
        return _OLDER if mine < others else _UNLIKE
    here, there = file_version(real_name(ours)), file_version(real_name(other))
    if not here or not there or here == there:
        return _EQUAL
    return _NEWER if here > there else _OLDER
