"""Random stacks of layers, as a builder could make them: changes in one layer do not conflict."""

import random
import tarfile
from collections.abc import Iterator

from tests.unit.images.oci import Member, directory, hard_link, link, opaque, whiteout

_NAMES = ("a", "b", "c")
_TARGETS = ("a", "b/c", "../a", "../../c", "/a/b", "/none")
_CONTENTS = (b"", b"x", b"text\n" * 100, b"\0" * 200_000)
_MODES = (0o644, 0o600, 0o755, 0o4755)
_DIRECTORY_MODES = (0o755, 0o700, 0o1777)


def stack(seed: int) -> list[list[Member]]:
    """Return a random stack; the same seed returns the same stack."""
    chance = random.Random(seed)
    tree: dict[str, Member] = {}
    return [_Layer(chance, tree).members() for _ in range(chance.randint(2, 5))]


class _Layer:
    def __init__(self, chance: random.Random, tree: dict[str, Member]) -> None:
        self._chance = chance
        self._tree = tree  # the tree up to this layer
        self._made: dict[str, Member] = {}
        self._gone: dict[str, Member] = {}  # markers, by what they hide
        self._opaque: list[Member] = []
        self._kept: set[str] = set()  # files to which this layer has hard links
        changes = (self._file, self._directory, self._link, self._hard_link, self._hide)
        for _ in range(chance.randint(0, 10)):
            path = "/".join(chance.choices(_NAMES, k=chance.choice((1, 1, 2, 2, 3))))
            if self._may_change(path):
                chance.choice(changes)(path)

    def members(self) -> list[Member]:
        """Return the layer's members: parents first, targets of hard links before their links."""
        found = [*self._made.values(), *self._gone.values(), *self._opaque]
        links = [member for member in found if member.kind == tarfile.LNKTYPE]
        others = [member for member in found if member.kind != tarfile.LNKTYPE]
        return sorted(others, key=lambda member: member.path) + links

    def _may_change(self, path: str) -> bool:
        parent = path.rpartition("/")[0]
        return (
            (not parent or _is_directory(self._tree.get(parent)))
            and path not in self._made
            and not any(_is_within(path, gone) or _is_within(gone, path) for gone in self._gone)
            and not any(_is_within(other, path) for other in (*self._kept, *self._made))
        )

    def _put(self, path: str, member: Member, stands_for: Member | None = None) -> None:
        """Add a member and, as builders do, its parent directories."""
        for parent in _parents(path):
            self._made.setdefault(parent, self._tree[parent])
        if not (_is_directory(member) and _is_directory(self._tree.get(path))):
            self._drop(path)
        self._made[path] = member
        self._tree[path] = stands_for or member

    def _drop(self, path: str) -> None:
        for other in [other for other in self._tree if _is_within(other, path)]:
            del self._tree[other]

    def _file(self, path: str) -> None:
        content, mode = self._chance.choice(_CONTENTS), self._chance.choice(_MODES)
        self._put(path, Member(path, content, mode=mode))

    def _link(self, path: str) -> None:
        self._put(path, link(path, self._chance.choice(_TARGETS)))

    def _directory(self, path: str) -> None:
        was_there = _is_directory(self._tree.get(path))
        self._put(path, directory(path, self._chance.choice(_DIRECTORY_MODES)))
        if was_there and self._chance.random() < 0.3:
            itself = self._tree[path]
            self._drop(path)
            self._tree[path] = itself
            self._opaque.append(opaque(path))

    def _hard_link(self, path: str) -> None:
        files = [name for name, member in self._tree.items() if member.kind == tarfile.REGTYPE]
        files = [name for name in files if not _is_within(name, path)]
        if files:
            target = self._chance.choice(files)
            meant = self._tree[target]
            self._kept.add(target)
            self._put(path, hard_link(path, target)._replace(mode=meant.mode), meant)

    def _hide(self, path: str) -> None:
        if path in self._tree:
            self._drop(path)
            self._gone[path] = whiteout(path)


def _is_directory(member: Member | None) -> bool:
    return member is not None and member.kind == tarfile.DIRTYPE


def _is_within(path: str, other: str) -> bool:
    return f"{path}/".startswith(f"{other}/")


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path
