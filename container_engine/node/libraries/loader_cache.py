"""Look up names in the cache of glibc's loader, /etc/ld.so.cache, and add some. Pure.

The format is that of glibc since 2.2 ("glibc-ld.so.cache1.1"), which may follow the older one
("ld.so-1.7.0"); a file with only the older one is read as well, and written in the newer one.
Offsets count from the head of the newer part. Entries are in descending order, with numbers inside
a name compared as numbers. The loader uses binary search: entries out of order are not found. Among
entries of one name it takes the first that fits the machine.
"""

from __future__ import annotations

import sys
from struct import Struct
from struct import error as struct_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_OLD, _NEW = b"ld.so-1.7.0", b"glibc-ld.so.cache1.1"
_OLD_HEAD, _OLD_ENTRY = Struct("=12sI"), Struct("=iII")
_HEAD, _ENTRY = Struct("=20sIIB3xI12x"), Struct("=iIIIQ")
_EXTENSION_MAGIC, _HWCAPS_TAG = 0xEAA42174, 1
_EXTENSION_HEAD, _SECTION = Struct("=II"), Struct("=IIII")
# a cache with more entries, or a longer name or path, is not a real one
_MOST_ENTRIES = 1 << 16
_LONGEST = 8192
_ORDERS = {"little": 2, "big": 3}
_LIBC6 = 3
# ldconfig's flags for libraries of a machine (e_machine) that runs 64-bit ELF
_FLAGS = {62: 0x0300, 183: 0x0A00, 21: 0x0500, 22: 0x0400, 243: 0x1000, 258: 0x1100}

Entry = tuple[int, int, int, int, int]


def flags(machine: int) -> int:
    return _FLAGS.get(machine, 0) | _LIBC6


class Cache:
    """One cache file's content. Any other file reads as an empty cache."""

    def __init__(self, content: bytes, machine: int) -> None:
        self._flags = flags(machine)
        self._data = b""
        self._entries: list[Entry] = []
        self._extension = 0
        self._by_name: dict[bytes, list[int]] = {}
        start = _new_part(content)
        try:
            if start is not None:
                self._read(content[start:])
            elif content.startswith(_OLD):
                self._read_old(content)
        except struct_error:  # a file that ends in the middle of a head
            self._data, self._entries, self._extension = b"", [], 0

    def _read(self, data: bytes) -> None:
        _magic, count, _length, _order, extension = _HEAD.unpack_from(data)
        if count > _MOST_ENTRIES or len(data) < _HEAD.size + count * _ENTRY.size:
            return
        self._data, self._extension = data, extension
        body = data[_HEAD.size : _HEAD.size + count * _ENTRY.size]
        self._entries = self._within(_ENTRY.iter_unpack(body))

    def _read_old(self, content: bytes) -> None:
        _magic, count = _OLD_HEAD.unpack_from(content)
        strings = _OLD_HEAD.size + count * _OLD_ENTRY.size
        body = content[_OLD_HEAD.size : strings]
        if count > _MOST_ENTRIES or len(content) < strings:
            return
        self._data = content
        self._entries = self._within(
            (flag, key + strings, value + strings, 0, 0)
            for flag, key, value in _OLD_ENTRY.iter_unpack(body)
        )

    def _within(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return the entries without those whose offsets are beyond the end of the file.

        When all entries are moved, such an offset might exceed 32 bits.
        """
        size = len(self._data)
        return [entry for entry in entries if entry[1] < size and entry[2] < size]

    def _string(self, offset: int) -> bytes:
        end = self._data.find(b"\0", offset, offset + _LONGEST)
        return self._data[offset:end] if end >= 0 else b""

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: str) -> list[str]:
        """Return the paths of a library, in the order in which the loader tries them."""
        places = self._places_by_name().get(name.encode("utf-8", "surrogateescape"), ())
        return [self._string(place).decode("utf-8", "surrogateescape") for place in places]

    def names(self, prefix: str) -> list[str]:
        """Return the names with this prefix."""
        start = prefix.encode("utf-8", "surrogateescape")
        found = (name for name in self._places_by_name() if name.startswith(start))
        return [name.decode("utf-8", "surrogateescape") for name in found]

    def _places_by_name(self) -> dict[bytes, list[int]]:
        """Return the offsets of the paths for each name that this machine's loader would take."""
        if not self._by_name:
            for flag, key, value, _version, _hwcap in self._entries:
                if flag == self._flags:
                    self._by_name.setdefault(self._string(key), []).append(value)
        return self._by_name

    def with_entries(self, added: Mapping[str, str]) -> bytes:
        """Return a cache file in which these names lead to these paths, all others as before."""
        ours = {
            name.encode("utf-8", "surrogateescape"): path.encode("utf-8", "surrogateescape")
            for name, path in added.items()
        }
        kept = [
            entry
            for entry in self._entries
            if entry[0] != self._flags or self._string(entry[1]) not in ours
        ]
        # the old file's bytes stay as strings after the entries: only the offsets move
        base = _HEAD.size + (len(kept) + len(ours)) * _ENTRY.size
        strings = bytearray(self._data)
        merged: list[Entry] = []
        done = 0
        for name, path in sorted(ours.items(), key=lambda pair: order(pair[0]), reverse=True):
            place = self._place(kept, name)
            merged += [_moved(entry, base) for entry in kept[done:place]]
            at = base + len(strings)
            merged.append((self._flags, at, at + len(name) + 1, 0, 0))
            strings += name + b"\0" + path + b"\0"
            done = place
        merged += [_moved(entry, base) for entry in kept[done:]]
        return _file(merged, bytes(strings), [base + where for where in self._hwcaps()])

    def _place(self, kept: Sequence[Entry], name: bytes) -> int:
        """Return the index in `kept`, in descending order, at which to insert the name."""
        wanted = order(name)
        low, high = 0, len(kept)
        while low < high:
            middle = (low + high) // 2
            if order(self._string(kept[middle][1])) > wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def _hwcaps(self) -> list[int]:
        """Return the offsets of the names of processor levels, since glibc 2.33.

        Entries refer to a name by its index in this list.
        """
        if not self._extension or len(self._data) < self._extension + _EXTENSION_HEAD.size:
            return []
        magic, count = _EXTENSION_HEAD.unpack_from(self._data, self._extension)
        at = self._extension + _EXTENSION_HEAD.size
        if magic != _EXTENSION_MAGIC or len(self._data) < at + count * _SECTION.size:
            return []
        sections = _SECTION.iter_unpack(self._data[at : at + count * _SECTION.size])
        for tag, _flags, offset, size in sections:
            if tag == _HWCAPS_TAG:
                table = self._data[offset : offset + size]
                offsets = Struct("=I").iter_unpack(table[: len(table) // 4 * 4])
                return [where if where < len(self._data) else 0 for (where,) in offsets]
        return []


def _new_part(content: bytes) -> int | None:
    if content.startswith(_NEW) and len(content) >= _HEAD.size:
        return 0
    if not content.startswith(_OLD) or len(content) < _OLD_HEAD.size:
        return None
    _magic, count = _OLD_HEAD.unpack_from(content)
    # aligned as the newer head requires
    start: int = (_OLD_HEAD.size + count * _OLD_ENTRY.size + 7) & ~7
    return start if content[start : start + len(_NEW)] == _NEW else None


def order(name: bytes) -> list[tuple[int, int, bytes]]:
    """Return a sort key with the order of the loader: digits after all else, numbers by value.

    A number is represented by its length and digits, because int() refuses very long ones.
    """
    key: list[tuple[int, int, bytes]] = []
    digits = b""
    for byte in name + b"\0":
        if 48 <= byte <= 57:
            digits += bytes((byte,))
            continue
        if digits:
            value = digits.lstrip(b"0")
            key.append((1, len(value), value))
            digits = b""
        # the loader compares chars, which are signed on some machines; names are ASCII
        key.append((0, byte, b""))
    return key


def _moved(entry: Entry, by: int) -> Entry:
    flag, key, value, version, hwcap = entry
    return flag, key + by, value + by, version, hwcap


def _file(entries: Sequence[Entry], strings: bytes, hwcaps: Sequence[int]) -> bytes:
    base = _HEAD.size + len(entries) * _ENTRY.size
    extension = (base + len(strings) + 3) & ~3 if hwcaps else 0
    parts = [
        _HEAD.pack(_NEW, len(entries), len(strings), _ORDERS[sys.byteorder], extension),
        *(_ENTRY.pack(*entry) for entry in entries),
        strings,
    ]
    if hwcaps:
        table = extension + _EXTENSION_HEAD.size + _SECTION.size
        parts += [
            bytes(extension - base - len(strings)),
            _EXTENSION_HEAD.pack(_EXTENSION_MAGIC, 1),
            _SECTION.pack(_HWCAPS_TAG, 0, table, 4 * len(hwcaps)),
            *(Struct("=I").pack(where) for where in hwcaps),
        ]
    return b"".join(parts)
