"""Read a shared library as the dynamic loader does: names, dependencies, symbol versions.

It reads 64-bit ELF of both byte orders from the program headers alone, like the loader: section
headers may have been stripped. Positions and sizes in the file are not trusted: everything is read
within bounds, and no chain of entries is followed forever.
"""

from __future__ import annotations

import os
from struct import Struct
from struct import error as struct_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeVar

    from container_engine.node.libraries.trees import Tree

    T = TypeVar("T")


Version = tuple[int, ...]

# Parts of glibc. They fit only their own loader: a part of another version ends the process, so
# they never come from the node.
_C_LIBRARY = frozenset(
    [
        *("libc", "libm", "libpthread", "libdl", "librt", "libresolv", "libutil", "libanl"),
        *("libmvec", "libthread_db", "libBrokenLocale", "libpcprofile", "libmemusage", "libcidn"),
    ]
)
# Images have these in the versions that their programs were built for.
_RUNTIME = frozenset(["libgcc_s", "libstdc++", "libz"])
_LOADERS = ("ld-linux", "ld64.so", "ld.so", "ld-musl-", "libc.musl-", "linux-vdso", "libnss_")
_ABI = "GLIBC_"
_MOST_DIGITS = 18


def is_c_library(name: str) -> bool:
    """Check whether a dependency of this name is part of the C library or its loader."""
    stem, dot_so, _version = name.partition(".so")
    return (
        (bool(dot_so) and stem in _C_LIBRARY)
        or name.startswith(_LOADERS)
        # the newer libnsl is a library of its own
        or name == "libnsl.so.1"
    )


def is_runtime(name: str) -> bool:
    """Check whether a library of this name in a node's directory must not hide the image's."""
    return is_c_library(name) or name.partition(".so")[0] in _RUNTIME


def c_version(versions: Iterable[str]) -> Version:
    """Return the newest GLIBC_x.y among symbol versions, or () if there is none."""
    found = [
        numbers(version[len(_ABI) :])
        for version in versions
        if version.startswith(_ABI) and _is_number(version[len(_ABI) :][:1])
    ]
    return max(found, default=())


def numbers(text: str) -> Version:
    """Parse `2.3.4` into a tuple, which ends before the first part that is not a number."""
    found = []
    for part in text.split("."):
        if not _is_number(part):
            break
        found.append(int(part))
    return tuple(found)


def _is_number(text: str) -> bool:
    """Check that int() accepts the text: str.isdigit also accepts a superscript two."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def file_version(file_name: str) -> Version:
    """Return the numbers after `.so`: (200, 26, 0) for libnl-3.so.200.26.0."""
    return numbers(file_name.partition(".so.")[2])


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


_LOADED = (2, 3)  # ET_EXEC: programs; ET_DYN: libraries, and programs for any address
_PT_LOAD, _PT_DYNAMIC = 1, 2
_NEEDED, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 6, 10, 14, 15, 29
_HASH = 4
_VERDEF, _VERDEFNUM, _VERNEED, _VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_BASE = 1  # flag of the definition of the file itself
_MOST = 16 << 20  # larger than any table of a real library
_FARTHEST = 1 << 62
_MOST_ENTRIES = 1 << 16
# limits for one name, since names of symbols can be long, and for all names of a library
_LONGEST_NAME = 1 << 16
_MOST_OF_NAMES = 64 << 20
_MOST_SEGMENTS = 512
_UNDEFINED, _WEAK = 0, 2


class NotALibraryError(Exception):
    """A file that no 64-bit dynamic loader would load."""


class Library:
    """One shared library or program. `path` is in the image, or on the node if `on_node`.

    `needs` are the required symbol versions, by the file name of the library that must have them.
    `defines` are the versions that it has itself, without the base version, which names the file.
    """

    def __init__(self, path: str, machine: int) -> None:
        self.path = path
        self.machine = machine
        self.on_node = False
        self.soname = ""
        self.needed: list[str] = []
        self.rpath = ""
        self.runpath = ""
        self.needs: dict[str, list[str]] = {}
        self.defines: list[str] = []


def read(path: str, tree: Tree) -> Library:
    """Read a library. Raise OSError, or NotALibraryError with the fault of the file."""
    return _read(path, tree, lambda file: file.library)


def symbols(path: str, tree: Tree) -> tuple[set[str], set[str]]:
    """Return the names of the symbols that the library needs, and of those that it offers.

    Weak symbols are not counted as needed. Raise the same errors as `read`.
    """
    return _read(path, tree, _File.symbols)


def _read(path: str, tree: Tree, parse: Callable[[_File], T]) -> T:
    fd = tree.open(path)
    try:
        return parse(_File(fd, path))
    except (OSError, MemoryError) as error:
        tree.judge(error)
        if isinstance(error, OSError):
            raise
        raise NotALibraryError(f"damaged ({error})") from None
    except (struct_error, ValueError, IndexError, OverflowError) as error:
        raise NotALibraryError(f"damaged ({error})") from None
    finally:
        os.close(fd)


class _File:
    """An open file. Methods raise ValueError and the like for damaged data, as `_read` expects."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        head = os.pread(fd, 4096, 0)
        if head[:4] != b"\x7fELF":
            raise NotALibraryError("not an ELF file")
        if head[4:5] != b"\2" or head[5:6] not in (b"\1", b"\2"):
            raise NotALibraryError("not a 64-bit ELF file")
        self._order = "<" if head[5] == 1 else ">"
        kind, machine = self._struct("HH").unpack_from(head, 16)
        if kind not in _LOADED:
            raise NotALibraryError("an ELF file that is not loaded")
        self.library = Library(path, machine)
        self._segments: list[tuple[int, int, int]] = []
        dynamic = self._program_headers(head)
        self._tags: dict[int, int] = {}
        needed = self._dynamic(dynamic)
        self._strings = self._at(self._tags.get(_STRTAB, 0), self._tags.get(_STRSZ, 0))
        # the remaining size of names to read: any number of them may share the same bytes
        self._room = _MOST_OF_NAMES
        self._name(needed)
        self._versions()

    def _struct(self, fields: str) -> Struct:
        return Struct(self._order + fields)

    def _program_headers(self, head: bytes) -> bytes:
        """Return the dynamic section; record where the loaded segments are in the file."""
        start, size, count = (
            self._struct(fields).unpack_from(head, at)[0]
            for fields, at in (("Q", 32), ("H", 54), ("H", 56))
        )
        if count > _MOST_SEGMENTS:
            raise ValueError("too many segments")
        table = head[start : start + size * count]
        if len(table) < size * count:
            table = self._read(start, size * count)
        dynamic = b""
        layout = self._struct("II6Q")
        for at in range(0, size * count, size):
            kind, _flags, offset, address, _physical, in_file, _size, _align = layout.unpack_from(
                table, at
            )
            if kind == _PT_LOAD:
                self._segments.append((address, offset, in_file))
            elif kind == _PT_DYNAMIC and not dynamic:
                dynamic = self._read(offset, in_file)
        return dynamic

    def _read(self, offset: int, size: int) -> bytes:
        if not (0 <= size <= _MOST and 0 <= offset < _FARTHEST):
            raise ValueError("a table that is too large or too far")
        return os.pread(self._fd, size, offset)

    def _at(self, address: int, size: int) -> bytes:
        """Return the bytes loaded at this address; fewer if the segment ends before."""
        for start, offset, length in self._segments:
            if start <= address < start + length:
                return self._read(offset + address - start, min(size, start + length - address))
        return b""

    def _dynamic(self, section: bytes) -> list[int]:
        """Fill the tags; return the values of DT_NEEDED, which may occur more than once."""
        needed = []
        for tag, value in self._struct("QQ").iter_unpack(section[: len(section) // 16 * 16]):
            if tag == 0:
                break
            if tag == _NEEDED:
                needed.append(value)
                if len(needed) > _MOST_ENTRIES:
                    raise ValueError("too many libraries are needed")
            else:
                self._tags[tag] = value
        return needed

    def _string(self, offset: int) -> str:
        end = self._strings.index(b"\0", offset, offset + _LONGEST_NAME)
        self._room -= end - offset
        if self._room < 0:
            raise ValueError("names that are too long")
        return self._strings[offset:end].decode("utf-8", "surrogateescape")

    def _name(self, needed: list[int]) -> None:
        library = self.library
        library.needed = [self._string(offset) for offset in needed]
        if _SONAME in self._tags:
            library.soname = self._string(self._tags[_SONAME])
        if _RUNPATH in self._tags:
            library.runpath = self._string(self._tags[_RUNPATH])
        elif _RPATH in self._tags:
            # the loader uses the older tag only if the newer one is missing
            library.rpath = self._string(self._tags[_RPATH])

    def _versions(self) -> None:
        parts = 0
        head, part = self._struct("HHIII"), self._struct("IHHII")
        for table, at in self._chain(_VERNEED, _VERNEEDNUM, 12):
            _version, count, file, first, _next = head.unpack_from(table, at)
            wanted = self.library.needs.setdefault(self._string(file), [])
            parts += count
            if parts > _MOST_ENTRIES:
                raise ValueError("too many symbol versions")
            at += first  # noqa: PLW2901  # the parts begin here
            for _ in range(count):
                _hash, _flags, _other, name, following = part.unpack_from(table, at)
                wanted.append(self._string(name))
                at += following  # noqa: PLW2901
        head, part = self._struct("HHHHIII"), self._struct("II")
        for table, at in self._chain(_VERDEF, _VERDEFNUM, 16):
            _version, flags, _index, _count, _hash, first, _next = head.unpack_from(table, at)
            if not flags & _BASE:
                name, _following = part.unpack_from(table, at + first)
                self.library.defines.append(self._string(name))

    def _chain(self, where: int, how_many: int, next_at: int) -> Iterator[tuple[bytes, int]]:
        """Yield a table of linked entries, whose size is not recorded, with each one's position."""
        count = self._tags.get(how_many, 0)
        if where not in self._tags or not count:
            return
        if count > _MOST_ENTRIES:
            raise ValueError("too many symbol versions")
        table = self._at(self._tags[where], 64 * 1024)
        following = self._struct("I")
        at = 0
        for _ in range(count):
            yield table, at
            at += following.unpack_from(table, at + next_at)[0]

    def symbols(self) -> tuple[set[str], set[str]]:
        count = self._symbol_count()
        table = self._at(self._tags.get(_SYMTAB, 0), 24 * count)
        wanted, offered = set(), set()
        for name, info, _other, section, _value, _size in self._struct("IBBHQQ").iter_unpack(
            table[: len(table) // 24 * 24]
        ):
            if not name:
                continue
            if section != _UNDEFINED:
                offered.add(self._string(name))
            elif info >> 4 != _WEAK:
                wanted.add(self._string(name))
        return wanted, offered

    def _symbol_count(self) -> int:
        """Return the number of symbols, from the older hash table if the library has one.

        Otherwise they are counted up to the string table, which linkers put after them.
        """
        if _HASH in self._tags:
            count: int = self._struct("II").unpack(self._at(self._tags[_HASH], 8))[1]
            return min(count, _MOST // 24)
        begin, end = self._tags.get(_SYMTAB, 0), self._tags.get(_STRTAB, 0)
        return max(0, end - begin) // 24
