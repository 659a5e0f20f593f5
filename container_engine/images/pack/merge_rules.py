"""Find which files of which layers are visible in an image in the end. Pure.

The rules are those of the OCI image specification (layer.md) as Podman applies them: a whiteout
hides only what lower layers contain; a path leads through a symbolic link only if its own layer
made that link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from container_engine.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.images.pack.tar_stream import Xattrs

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
_MAX_LINKS = 40  # as in the kernel


class Content:
    """A file, link or FIFO: member number `index` of layer `layer`. Hard links share it."""

    __slots__ = ("index", "layer", "target")

    def __init__(self, layer: int, index: int, target: str | None) -> None:
        self.layer = layer
        self.index = index
        self.target = target  # of a symbolic link


class Directory:
    __slots__ = ("children", "mode", "mtime", "xattrs")

    def __init__(self, mode: int = 0o755, mtime: int = 0, xattrs: Xattrs = ()) -> None:
        self.mode = mode
        self.mtime = mtime
        self.xattrs = xattrs
        self.children: dict[str, Slot] = {}


class Slot:
    """The node under a name, and the layer that put it there."""

    __slots__ = ("layer", "node")

    def __init__(self, layer: int, node: Content | Directory) -> None:
        self.layer = layer
        self.node = node


Paths: TypeAlias = dict[int, list[str]]


class Visible(NamedTuple):
    """The directories, parents first, and for each layer the paths of its visible members."""

    directories: list[tuple[str, Directory]]
    contents: list[Paths]


class Tree:
    """The tree made by the members of all layers, which are added in order, lowest layer first."""

    def __init__(self) -> None:
        self.root = Directory()
        self._layer = -1

    def next_layer(self) -> None:
        self._layer += 1

    def add_directory(self, path: str, mode: int, mtime: int, xattrs: Xattrs = ()) -> None:
        parts = self._parts(path)
        if not parts:
            return  # the root keeps its own mode
        parent = self._directory(parts[:-1])
        found = parent.children.get(parts[-1])
        if found is not None and isinstance(found.node, Directory):
            found.layer, found.node.mode, found.node.mtime = self._layer, mode, mtime
            found.node.xattrs = xattrs
        else:
            parent.children[parts[-1]] = Slot(self._layer, Directory(mode, mtime, xattrs))

    def add_content(self, path: str, index: int, target: str | None = None) -> None:
        """Add member `index` of this layer, or apply it if it is a whiteout.

        `target` is given for a symbolic link.
        """
        parts = self._parts(path)
        if not parts:
            raise UserError(
                f"layer {self._layer}: a file in place of the root directory", see="image-damaged"
            )
        parent, name = self._directory(parts[:-1]), parts[-1]
        if name == OPAQUE:
            self._hide_lower(parent)
        elif name.startswith(WHITEOUT):
            self._hide(parent, name.removeprefix(WHITEOUT))
        else:
            parent.children[name] = Slot(self._layer, Content(self._layer, index, target))

    def add_hard_link(self, path: str, target: str) -> None:
        parts, target_parts = self._parts(path), self._parts(target)
        slot = self._slot(target_parts)
        if slot is None or isinstance(slot.node, Directory):
            raise UserError(
                f"layer {self._layer}: '{path}' is a hard link to '{target}', which is not a file",
                see="image-damaged",
            )
        self._directory(parts[:-1]).children[parts[-1]] = Slot(self._layer, slot.node)

    def visible(self) -> Visible:
        directories: list[tuple[str, Directory]] = []
        contents: list[Paths] = [{} for _layer in range(self._layer + 1)]
        for path, node in _walk(self.root, ""):
            if isinstance(node, Directory):
                directories.append((path, node))
            else:
                contents[node.layer].setdefault(node.index, []).append(path)
        return Visible(directories, contents)

    def _parts(self, path: str) -> list[str]:
        parts = [part for part in path.split("/") if part not in {"", "."}]
        if ".." in parts:
            raise UserError(
                f"layer {self._layer}: the path '{path}' leads out of the image",
                see="image-damaged",
            )
        return parts

    def _slot(self, parts: list[str]) -> Slot | None:
        return self._directory(parts[:-1]).children.get(parts[-1]) if parts else None

    def _directory(self, parts: list[str]) -> Directory:
        """Return the directory at these names. Anything missing or in the way becomes one."""
        trail = [self.root]
        waiting, links = parts[::-1], 0
        while waiting:
            name = waiting.pop()
            if name == "..":
                trail = trail[:-1] or trail
                continue
            target = self._own_link(trail[-1].children.get(name))
            if target is None:
                trail.append(self._subdirectory(trail[-1], name))
                continue
            links += 1
            if links > _MAX_LINKS:
                raise UserError(
                    f"layer {self._layer}: a loop of links at '{'/'.join(parts)}'",
                    see="image-damaged",
                )
            trail = trail[:1] if target.startswith("/") else trail
            waiting += [part for part in target.split("/") if part not in {"", "."}][::-1]
        return trail[-1]

    def _own_link(self, slot: Slot | None) -> str | None:
        if slot is None or slot.layer != self._layer or isinstance(slot.node, Directory):
            return None
        return slot.node.target

    def _subdirectory(self, parent: Directory, name: str) -> Directory:
        slot = parent.children.get(name)
        if slot is not None and isinstance(slot.node, Directory):
            return slot.node
        node = Directory()
        parent.children[name] = Slot(self._layer, node)
        return node

    def _hide(self, parent: Directory, name: str) -> None:
        slot = parent.children.get(name)
        if slot is None:
            return
        if isinstance(slot.node, Directory):
            self._hide_lower(slot.node)
            if slot.node.children:
                return
        if slot.layer < self._layer:
            del parent.children[name]

    def _hide_lower(self, directory: Directory) -> None:
        for name in list(directory.children):
            self._hide(directory, name)


def _walk(directory: Directory, prefix: str) -> Iterator[tuple[str, Content | Directory]]:
    for name, slot in directory.children.items():
        path = f"{prefix}{name}"
        yield path, slot.node
        if isinstance(slot.node, Directory):
            yield from _walk(slot.node, f"{path}/")
