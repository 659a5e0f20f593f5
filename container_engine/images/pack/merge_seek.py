"""Merge the layers of an image into one tar stream, whatever the order of their entries.

None is unpacked to disk. Each is read twice: once to find what is visible in the end, once for the
contents. The rules are those of `merge_stream.py`. Owners become root; device nodes and extended
attributes that only root may set are left out. They would have no effect in a container, which has
a single user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from container_engine.images.pack import layers, tar_header
from container_engine.images.pack.layers import Layer
from container_engine.images.pack.merge_stream import (
    MAX_LINKS,
    OPAQUE,
    WHITEOUT,
    check_levels,
    check_target,
    damaged,
    is_leftover,
    names,
    text_of,
)
from container_engine.images.pack.tar_header import Entry, Xattrs
from container_engine.images.pack.tar_stream import Out
from container_engine.images.policy import Account


class Content:
    """A file, link or FIFO: member number `index` of layer `layer`. Hard links share it."""

    __slots__ = ("index", "layer", "target")

    def __init__(self, layer: int, index: int, target: bytes | None) -> None:
        self.layer = layer
        self.index = index
        self.target = target  # of a symbolic link


class Directory:
    __slots__ = ("children", "mode", "mtime", "xattrs")

    def __init__(self, mode: int = 0o755, mtime: int = 0, xattrs: Xattrs = ()) -> None:
        self.mode = mode
        self.mtime = mtime
        self.xattrs = xattrs
        self.children: dict[bytes, Slot] = {}


class Slot:
    """The node under a name, and the layer that put it there."""

    __slots__ = ("layer", "node")

    def __init__(self, layer: int, node: Content | Directory) -> None:
        self.layer = layer
        self.node = node


Paths: TypeAlias = dict[int, list[bytes]]


class Visible(NamedTuple):
    """The directories, parents first, and for each layer the paths of its visible members."""

    directories: list[tuple[bytes, Directory]]
    contents: list[Paths]


class Tree:
    """The tree made by the members of all layers, which are added in order, lowest layer first.

    `mark` is how the names of markers begin.
    """

    def __init__(self, mark: bytes = WHITEOUT) -> None:
        self._mark = mark
        self.root = Directory()
        self._layer = -1
        self._leftovers: dict[bytes, Content] = {}  # AUFS's files of this layer

    def next_layer(self) -> None:
        self._layer += 1
        self._leftovers = {}

    def add_directory(self, path: bytes, mode: int, mtime: int, xattrs: Xattrs = ()) -> None:
        parts = names(path, self._layer)
        if not parts:
            return  # the root keeps its own mode
        if is_leftover(parts, self._mark):
            return
        parent = self._directory(parts[:-1])
        if self._is_marker(parent, parts[-1]):
            return
        found = parent.children.get(parts[-1])
        if found is not None and isinstance(found.node, Directory):
            found.layer, found.node.mode, found.node.mtime = self._layer, mode, mtime
            found.node.xattrs = xattrs
        else:
            parent.children[parts[-1]] = Slot(self._layer, Directory(mode, mtime, xattrs))

    def add_content(self, path: bytes, index: int, target: bytes | None = None) -> None:
        """Add member `index` of this layer, or apply it if it is a whiteout.

        `target` is given for a symbolic link.
        """
        parts = self._parts(path)
        content = Content(self._layer, index, target)
        if is_leftover(parts, self._mark):
            self._leftovers[b"/".join(parts)] = content
            return
        parent, name = self._directory(parts[:-1]), parts[-1]
        if self._is_marker(parent, name):
            return
        if target is not None:
            check_target(target, self._layer)
        parent.children[name] = Slot(self._layer, content)

    def add_hard_link(self, path: bytes, target: bytes) -> None:
        parts = self._parts(path)
        if is_leftover(parts, self._mark):
            return
        parent, name = self._directory(parts[:-1]), parts[-1]
        if self._is_marker(parent, name):
            return
        node = self._linked(names(target, self._layer))
        if node is None:
            what = f"'{text_of(path)}' is a hard link to '{text_of(target)}', which is not a file"
            raise damaged(self._layer, what)
        parent.children[name] = Slot(self._layer, node)

    def visible(self) -> Visible:
        directories: list[tuple[bytes, Directory]] = []
        contents: list[Paths] = [{} for _layer in range(self._layer + 1)]
        for path, node in _walk(self.root):
            if isinstance(node, Directory):
                directories.append((path, node))
            else:
                contents[node.layer].setdefault(node.index, []).append(path)
        return Visible(directories, contents)

    def _parts(self, path: bytes) -> list[bytes]:
        """Return the names in the path of a member that is no directory."""
        parts = names(path, self._layer)
        if not parts:
            raise damaged(self._layer, "a file in place of the root directory")
        return parts

    def _linked(self, parts: list[bytes]) -> Content | None:
        """Return what a hard link to these names stands for, None if it is no file."""
        if parts and is_leftover(parts, self._mark):
            return self._leftovers.get(b"/".join(parts))
        slot = self._directory(parts[:-1]).children.get(parts[-1]) if parts else None
        return None if slot is None or isinstance(slot.node, Directory) else slot.node

    def _is_marker(self, parent: Directory, name: bytes) -> bool:
        """Apply a whiteout, of whatever type; return whether it is one."""
        if not name.startswith(self._mark):
            return False
        if name == OPAQUE:
            self._hide_lower(parent)
        else:
            self._hide(parent, name.removeprefix(WHITEOUT))
        return True

    def _directory(self, parts: list[bytes]) -> Directory:
        """Return the directory at these names. Anything missing or in the way becomes one."""
        trail, taken = [self.root], list[bytes]()
        waiting, links = parts[::-1], 0
        while waiting:
            name = waiting.pop()
            if name == b"..":
                trail, taken = trail[:-1] or trail, taken[:-1]
                continue
            target = self._own_link(trail[-1].children.get(name))
            if target is None:
                trail.append(self._subdirectory(trail[-1], name))
                taken.append(name)
                check_levels(taken, self._layer)
                continue
            links += 1
            if links > MAX_LINKS:
                raise damaged(self._layer, f"a loop of links at '{text_of(b'/'.join(parts))}'")
            if target.startswith(b"/"):
                trail, taken = trail[:1], []
            waiting += [part for part in target.split(b"/") if part not in {b"", b"."}][::-1]
        return trail[-1]

    def _own_link(self, slot: Slot | None) -> bytes | None:
        if slot is None or slot.layer != self._layer or isinstance(slot.node, Directory):
            return None
        return slot.node.target

    def _subdirectory(self, parent: Directory, name: bytes) -> Directory:
        slot = parent.children.get(name)
        if slot is not None and isinstance(slot.node, Directory):
            return slot.node
        node = Directory()
        parent.children[name] = Slot(self._layer, node)
        return node

    def _hide(self, parent: Directory, name: bytes) -> None:
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
        """Remove what lower layers have put below a directory, the deepest first."""
        below = [directory]
        for one in below:  # grows
            below += [s.node for s in one.children.values() if isinstance(s.node, Directory)]
        for one in reversed(below):
            one.children = {
                name: slot
                for name, slot in one.children.items()
                if slot.layer == self._layer
                or (isinstance(slot.node, Directory) and slot.node.children)
            }


def _walk(root: Directory) -> Iterator[tuple[bytes, Content | Directory]]:
    """Yield the paths and nodes below a directory, parents first."""
    waiting = [(b"", root)]
    while waiting:
        prefix, directory = waiting.pop()
        for name, slot in directory.children.items():
            path = prefix + name
            yield path, slot.node
            if isinstance(slot.node, Directory):
                waiting.append((path + b"/", slot.node))


def write_merged(
    stack: Sequence[Layer],
    out: Out,
    env: Mapping[str, str],
    account: Account,
    mark: bytes = WHITEOUT,
) -> None:
    """Merge layers, the lowest first, and write them as a tar archive to `out`.

    `mark` is how the names of markers begin; `env` is the environment for zstd. Raise UserError for
    a damaged layer, or for more than `account` allows.
    """
    visible = _visible(stack, env, account, mark)
    for path, directory in visible.directories:
        entry = Entry(path, tar_header.DIRECTORY, directory.mode, directory.mtime, 0, b"")
        out.write(tar_header.header(entry._replace(xattrs=directory.xattrs)))
    for layer, contents in zip(stack, visible.contents, strict=True):
        if contents:
            _copy(layer, contents, out, env)
    out.write(tar_header.END)


def _visible(
    stack: Sequence[Layer], env: Mapping[str, str], account: Account, mark: bytes
) -> Visible:
    tree = Tree(mark)
    for layer in stack:
        tree.next_layer()
        with layers.entries(layer, env, account) as reader:
            for index, entry in enumerate(reader):
                _add(tree, index, entry)
    return tree.visible()


def _add(tree: Tree, index: int, entry: Entry) -> None:
    if entry.kind == tar_header.DIRECTORY:
        tree.add_directory(entry.name, entry.mode, entry.mtime, entry.xattrs)
    elif entry.kind == tar_header.HARD_LINK:
        tree.add_hard_link(entry.name, entry.link)
    else:
        target = entry.link if entry.kind == tar_header.SYMLINK else None
        tree.add_content(entry.name, index, target)


def _copy(layer: Layer, contents: Paths, out: Out, env: Mapping[str, str]) -> None:
    """Write the visible entries of one layer, which have been counted."""
    with layers.entries(layer, env) as reader:
        for index, entry in enumerate(reader):
            paths = contents.get(index)
            if not paths or entry.kind in tar_header.DEVICES:
                continue
            out.write(tar_header.header(entry._replace(name=paths[0])))
            reader.copy(out)
            for other in paths[1:]:
                shared = Entry(other, tar_header.HARD_LINK, 0, 0, 0, paths[0])
                out.write(tar_header.header(shared))
