"""Merge the layers of an image into one tar stream, each read once, the highest layer first.

The paths that higher layers have, hide or replace are known when a lower one is read, so everything
visible can be passed on at once. Some orders of entries raise UnusualError; `merge_seek.py`, which
takes two passes, supports any order.

The rules are those of the OCI image specification (layer.md) as Podman applies them: a whiteout
hides only what lower layers contain, and is one by its name, whatever its type; a path leads
through a symbolic link only if its own layer made that link; what AUFS has left at the top of a
layer means nothing, but hard links may lead there.
"""

from __future__ import annotations

from container_engine.base.errors import UserError
from container_engine.images.pack import tar_header
from container_engine.images.pack.tar_header import Entry
from container_engine.images.pack.tar_stream import Out, Reader
from container_engine.images.squashfs import MADE_SO

WHITEOUT = b".wh."
NO_MARK = b"\0"  # in place of it for a root file system, in which such names mean nothing
OPAQUE = b".wh..wh..opq"
MAX_LINKS = 40  # as in the kernel
MAX_LEVELS = 256  # ten times what real images have; a tree of more would cost time and stack
_MAX_NAME, _MAX_PATH = 255, 4095  # bytes, as in the kernel
_SHOWN = 60


def names(path: bytes, layer: int) -> list[bytes]:
    """Return the names in a path of a layer, cleaned of dots as Go's filepath.Clean does it.

    Raise UserError for a path that leads out of the root or that no file system can have.
    """
    found = path.split(b"/")
    if b"" in found or b"." in found or b".." in found:
        found = _cleaned(found, path, layer)
    if len(path) > _MAX_NAME or b"\0" in path:
        _check_length(path, layer)
        check_levels(found, layer)
        if max(map(len, found), default=0) > _MAX_NAME:
            raise damaged(layer, f"a name in '{_shown(path)}' has more than {_MAX_NAME} bytes")
    return found


def is_leftover(parts: list[bytes], mark: bytes) -> bool:
    """Check whether a path is one of those that AUFS keeps for itself at the top of a layer."""
    return parts[0].startswith(2 * mark) and parts != [OPAQUE]


def check_target(target: bytes, layer: int) -> None:
    """Raise UserError for the target of a symbolic link that no file system can keep."""
    if not target:
        raise damaged(layer, "a symbolic link that leads nowhere")
    _check_length(target, layer)


def check_levels(found: list[bytes], layer: int) -> None:
    """Raise UserError for names, also those that links lead to, that would be too deep a tree."""
    if len(found) > MAX_LEVELS:
        shown = _shown(b"/".join(found))
        raise damaged(layer, f"'{shown}' is more than {MAX_LEVELS} directories deep")


def damaged(layer: int, what: str) -> UserError:
    return UserError(f"layer {layer}: {what}", MADE_SO, "image-damaged")


def _cleaned(found: list[bytes], path: bytes, layer: int) -> list[bytes]:
    kept: list[bytes] = []
    for name in found:
        if name == b".." and not kept and not path.startswith(b"/"):
            raise damaged(layer, f"the path '{_shown(path)}' leads out of the image")
        if name == b"..":
            del kept[-1:]
        elif name not in {b"", b"."}:
            kept.append(name)
    return kept


def _check_length(path: bytes, layer: int) -> None:
    if len(path) > _MAX_PATH:
        raise damaged(layer, f"the path '{_shown(path)}' has more than {_MAX_PATH} bytes")
    if b"\0" in path:
        raise damaged(layer, f"the path '{_shown(path)}' has a NUL character")


def _shown(path: bytes) -> str:
    return text_of(path if len(path) <= _SHOWN else path[:_SHOWN] + "…".encode())


def text_of(path: bytes) -> str:
    return path.decode("utf-8", "replace")


_CONTENT, _MADE, _STATED = 1, 2, 3  # a file or link; an implied directory; one with its own entry


class UnusualError(Exception):
    """An order of entries that only `merge_seek.py` supports. It has no message for users."""


class Merger:
    """A merger of layers, highest first, that writes what is visible to `out`.

    `mark` is how the names of markers begin.
    """

    def __init__(self, out: Out, mark: bytes = WHITEOUT) -> None:
        self._out, self._mark = out, mark
        self._kinds: dict[bytes, int] = {}  # the visible paths of all layers so far
        self._hidden: set[bytes] = set()  # paths that no lower layer may add
        self._emptied: set[bytes] = set()  # directories below which no lower layer adds anything

    def add_layer(self, entries: Reader, number: int) -> None:
        """Add the next lower layer; messages name it by `number`.

        Raise UserError, UnusualError or tar_header.DamagedError.
        """
        layer = _Layer(self._out, self._kinds, self._hidden, self._emptied, number, self._mark)
        for entry in entries:
            layer.add(entry, entries)
        layer.finish()
        self._hidden |= layer.hides
        self._emptied |= layer.empties

    def finish(self) -> None:
        """Write the directories that no layer describes, and the end of the archive."""
        for path, kind in self._kinds.items():
            if kind == _MADE:
                directory = Entry(path, tar_header.DIRECTORY, 0o755, 0, 0, b"")
                self._out.write(tar_header.header(directory))
        self._out.write(tar_header.END)


class _Layer:
    def __init__(
        self,
        out: Out,
        kinds: dict[bytes, int],
        hidden: set[bytes],
        emptied: set[bytes],
        number: int,
        mark: bytes,
    ) -> None:
        self._out, self._kinds, self._number, self._mark = out, kinds, number, mark
        self._hidden, self._emptied = hidden, emptied
        self.hides: set[bytes] = set()
        self.empties: set[bytes] = set()
        self._links: dict[bytes, bytes] = {}  # symbolic links of this layer
        self._passed: set[bytes] = set()  # contents of this layer that are visible
        self._buried: set[bytes] = set()  # contents of this layer that are not
        self._devices: set[bytes] = set()  # those of `_passed` that are left out
        self._stated: dict[bytes, Entry] = {}  # directories with an entry in this layer
        self._open: dict[bytes, bool] = {b"": True}  # directories, and whether they are visible

    def add(self, entry: Entry, source: Reader) -> None:
        parts = names(entry.name, self._number)
        if not parts:
            if entry.kind != tar_header.DIRECTORY:
                raise damaged(self._number, "a file in place of the root directory")
            return
        if is_leftover(parts, self._mark):
            return
        parent, name = self._directory(parts[:-1]), parts[-1]
        path = parent + b"/" + name if parent else name
        if name.startswith(self._mark):
            self._hide(parent, name)
        elif entry.kind == tar_header.DIRECTORY:
            self._add_directory(path, entry)
        else:
            self._add_content(parent, path, entry, source)

    def finish(self) -> None:
        """Raise UnusualError if the layer hides and makes the same path: their order would matter.

        Call this after all entries were added, and before `hides` and `empties` are used.
        """
        for path in self._open.keys() - self._stated.keys() - {b""}:
            if self._hides_itself(path):
                raise UnusualError  # hidden, and made as the parent of another entry

    def _hides_itself(self, path: bytes) -> bool:
        while path:
            if path in self.hides:
                return True
            path = path.rpartition(b"/")[0]
            if path in self.empties:
                return True
        return False

    def _hide(self, parent: bytes, name: bytes) -> None:
        self._is_open(parent)
        if name == OPAQUE:
            self.empties.add(parent)
        else:
            hidden = name.removeprefix(WHITEOUT)
            self.hides.add(parent + b"/" + hidden if parent else hidden)

    def _add_directory(self, path: bytes, entry: Entry) -> None:
        if path in self._passed or path in self._buried:
            raise UnusualError  # first a file, then a directory
        if self._stated.setdefault(path, entry) != entry:
            raise UnusualError  # described twice, the later one counts
        if not self._is_open(path) or self._kinds[path] == _STATED:
            return
        self._kinds[path] = _STATED
        self._out.write(tar_header.header(entry._replace(name=path)))

    def _add_content(self, parent: bytes, path: bytes, entry: Entry, source: Reader) -> None:
        if path in self._passed or path in self._buried or path in self._open:
            raise UnusualError  # this layer has it twice, the later one counts
        target = self._target(entry.link) if entry.kind == tar_header.HARD_LINK else entry.link
        if entry.kind == tar_header.SYMLINK:
            check_target(entry.link, self._number)
            self._links[path] = entry.link
        is_visible = (
            self._is_open(parent)
            and parent not in self._emptied
            and path not in self._kinds
            and path not in self._hidden
        )
        if not is_visible:
            self._buried.add(path)
            if self._kinds.get(path) in {_MADE, _STATED}:
                self.empties.add(path)  # a higher layer's directory takes this file's place
            return
        if entry.kind == tar_header.HARD_LINK and target not in self._passed:
            raise UnusualError  # a link to a file that is hidden or in a lower layer
        self._passed.add(path)
        self._kinds[path] = _CONTENT
        is_link = entry.kind == tar_header.HARD_LINK
        if entry.kind in tar_header.DEVICES or (is_link and target in self._devices):
            self._devices.add(path)
            return
        self._out.write(tar_header.header(entry._replace(name=path, link=target)))
        source.copy(self._out)

    def _target(self, link: bytes) -> bytes:
        parts = names(link, self._number)
        if not parts or is_leftover(parts, self._mark):
            raise UnusualError  # merge_seek reports the error, or has the file
        parent = self._directory(parts[:-1])
        return parent + b"/" + parts[-1] if parent else parts[-1]

    def _is_open(self, path: bytes) -> bool:
        """Check whether the directory `path` of this layer is visible, and record the answer."""
        known = self._open.get(path)
        if known is not None:
            return known
        if path in self._passed or path in self._buried:
            raise UnusualError  # a file that turns into a directory within one layer
        parent = path.rpartition(b"/")[0]
        is_open = (
            self._is_open(parent)
            and parent not in self._emptied
            and path not in self._hidden
            and self._kinds.get(path) != _CONTENT
        )
        if is_open:
            self._kinds.setdefault(path, _MADE)
        self._open[path] = is_open
        return is_open

    def _directory(self, parts: list[bytes]) -> bytes:
        """Return the path to which these names lead, through symlinks that this layer made."""
        path = b"/".join(parts)
        if not self._links or path in self._open:
            return path
        trail: list[bytes] = []
        waiting, links = parts[::-1], 0
        while waiting:
            name = waiting.pop()
            if name == b"..":
                del trail[-1:]
                continue
            trail.append(name)
            check_levels(trail, self._number)
            target = self._links.get(b"/".join(trail))
            if target is None:
                continue
            links += 1
            if links > MAX_LINKS:
                raise damaged(self._number, f"a loop of links at '{text_of(path)}'")
            del trail[-1 if not target.startswith(b"/") else 0 :]
            waiting += [part for part in target.split(b"/") if part not in {b"", b"."}][::-1]
        return b"/".join(trail)
