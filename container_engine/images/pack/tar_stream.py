"""Read and write tar archives quickly as streams of bytes, one header after the other.

Python's own module takes ten times as long for an archive of many small files. Rare features
(sparse files, headers of other vendors) raise UnusualError; `merge_seek.py` supports them, too.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from container_engine.images.pack.chunks import Stream

FILE, HARD_LINK, SYMLINK, DIRECTORY, FIFO = b"0", b"1", b"2", b"5", b"6"
_DEVICES = (b"3", b"4")
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL = b"L", b"K", b"x", b"g"
_EXTENSIONS = frozenset((_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL))
_BLOCK = 512
_ZEROS = bytes(_BLOCK)
_MAX_EXTENSION = 1 << 20  # bytes of a name or of pax records
_NAME_LENGTH = 100
_OCTAL_SIZE, MAX_TIME = 1 << 33, (1 << 32) - 1
_GNU, _USTAR = b"ustar  \0", b"ustar\0"
_CHECKSUM = slice(148, 156)
# the lower half of adler32 is one more than the sum of the bytes, modulo this
_ADLER_BASE, _LOWER_HALF = 65521, 0xFFFF

_XATTR = b"SCHILY.xattr."
_KEPT = b"user."
# overlay file systems that users mount interpret these attributes themselves
_NOT_KEPT = b"user.overlay."


Xattrs: TypeAlias = tuple[tuple[bytes, bytes], ...]
_NONE: Xattrs = ()


class UnusualError(Exception):
    """An archive that only `merge_seek.py` can read. It has no message for users."""


class DamagedError(Exception):
    """Data that is not a complete tar archive."""


class Out(Protocol):
    """An object to which an archive is written."""

    def write(self, piece: bytes | memoryview, /) -> object: ...


class Entry(NamedTuple):
    """An entry of an archive. `name` and `link` are as in the archive; times are whole seconds.

    `xattrs` are only the extended attributes that users may set.
    """

    name: bytes
    kind: bytes
    mode: int
    mtime: int
    size: int
    link: bytes
    xattrs: Xattrs = ()


class Reader:
    """An iterator over the entries of an archive, without devices.

    Read the content of an entry with `copy` before the next entry, or it is skipped. `on_entry` is
    called for each entry, devices included, and may raise.
    """

    def __init__(self, stream: Stream, on_entry: Callable[[], None] = lambda: None) -> None:
        self._stream, self._on_entry = stream, on_entry
        self._left = 0  # bytes up to the next header
        self._content = 0

    def __iter__(self) -> Iterator[Entry]:
        extended: dict[bytes, bytes] = {}
        while True:
            self._skip()
            block = self._stream.take(_BLOCK)
            if not block or block == _ZEROS:
                return
            if len(block) < _BLOCK:
                raise _cut_short()
            kind, entry = _parse(block, extended)
            self._content = entry.size
            self._left = -(-entry.size // _BLOCK) * _BLOCK
            if kind in _EXTENSIONS:
                self._extend(extended, kind)
                continue
            if extended:
                extended = {}
            self._on_entry()
            if kind not in _DEVICES:
                yield entry

    def copy(self, out: Out) -> None:
        """Write the content of the last entry, padded as in a tar archive."""
        for piece in self._rest():
            out.write(piece)

    def _extend(self, extended: dict[bytes, bytes], kind: bytes) -> None:
        if self._content > _MAX_EXTENSION:
            raise UnusualError
        text = self._stream.take(self._left)
        if len(text) < self._left:
            raise _cut_short()
        text, self._left = text[: self._content], 0
        if kind == _LONG_NAME:
            extended[b"path"] = text.rstrip(b"\0")
        elif kind == _LONG_LINK:
            extended[b"linkpath"] = text.rstrip(b"\0")
        else:
            if b"GNU.sparse" in text:
                raise UnusualError
            records = dict(_pax_records(text))
            if kind == _PAX_GLOBAL and records.keys() & {b"path", b"linkpath", b"size"}:
                raise UnusualError
            if kind == _PAX:
                extended.update(records)

    def _rest(self) -> Iterator[memoryview]:
        while self._left:
            piece = self._stream.some(self._left)
            if not piece:
                raise _cut_short()
            self._left -= len(piece)
            yield piece

    def _skip(self) -> None:
        for _piece in self._rest():
            pass


def _cut_short() -> DamagedError:
    return DamagedError("it is cut short")


def _parse(block: bytes, extended: dict[bytes, bytes]) -> tuple[bytes, Entry]:
    stated = block[_CHECKSUM]
    # the checksum counts its own field as blanks
    right = _number(stated) - 8 * 0x20 + sum(stated)
    if (right + 1) % _ADLER_BASE != zlib.adler32(block) & _LOWER_HALF:
        raise DamagedError("a header's checksum is wrong")
    name, link = block[:100].partition(b"\0")[0], block[157:257].partition(b"\0")[0]
    if block[345] and block[257:265].startswith(_USTAR):
        name = block[345:500].partition(b"\0")[0] + b"/" + name
    kind, length, when = block[156:157], _number(block[124:136]), _number(block[136:148])
    mode, xattrs = _number(block[100:108]) & 0o7777, _NONE
    if kind in _EXTENSIONS:
        return kind, Entry(name, kind, mode, 0, length, link)
    if extended:
        name, link = extended.get(b"path", name), extended.get(b"linkpath", link)
        try:
            length = int(extended.get(b"size", length))
            when = int(float(extended.get(b"mtime", when)))
        except (ValueError, OverflowError):
            raise DamagedError("its extended headers have an invalid number") from None
        xattrs = kept_xattrs(extended)
    if length < 0:
        raise DamagedError("a file has a negative size")
    kind = _kind(kind, name)
    length = length if kind == FILE else 0
    return kind, Entry(name, kind, mode, min(max(when, 0), MAX_TIME), length, link, xattrs)


def kept_xattrs(records: dict[bytes, bytes]) -> Xattrs:
    """Return the extended attributes in pax records that an image keeps."""
    named = ((key.removeprefix(_XATTR), key, value) for key, value in records.items())
    return tuple(
        (name, value)
        for name, key, value in named
        # a record without a value removes the attribute
        if value and name != key and name.startswith(_KEPT) and not name.startswith(_NOT_KEPT)
    )


def _kind(kind: bytes, name: bytes) -> bytes:
    if kind in {b"\0", b"7", FILE}:
        return DIRECTORY if kind == b"\0" and name.endswith(b"/") else FILE
    if kind in {HARD_LINK, SYMLINK, DIRECTORY, FIFO, *_DEVICES}:
        return kind
    raise UnusualError


def _number(field: bytes) -> int:
    """Parse octal digits, or GNU's binary form for numbers that do not fit."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big")
        bits = 8 * len(field)
        # the first bit only marks the form, the second is the sign
        return value - (1 << bits) if field[0] & 0x40 else value - (1 << (bits - 1))
    try:
        return int(field.rstrip(b"\0 ") or b"0", 8)
    except ValueError:
        raise DamagedError("a header has an invalid number") from None


def _pax_records(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    while text:
        length, blank, _rest = text.partition(b" ")
        if not blank or not length.isdigit() or not 0 < int(length) <= len(text):
            raise DamagedError("its extended headers cannot be read")
        record, text = text[len(length) + 1 : int(length) - 1], text[int(length) :]
        key, _equals, value = record.partition(b"=")
        yield key, value


def header(entry: Entry) -> bytes:
    """Return the header of an entry in GNU's format, with root as the owner."""
    extra = b""
    if entry.xattrs:
        extra += _extension(_PAX, b"".join(_pax_record(_XATTR + n, v) for n, v in entry.xattrs))
    if len(entry.link) > _NAME_LENGTH:
        extra += _extension(_LONG_LINK, entry.link + b"\0")
    if len(entry.name) > _NAME_LENGTH:
        extra += _extension(_LONG_NAME, entry.name + b"\0")
    return extra + _block(entry)


def _pax_record(key: bytes, value: bytes) -> bytes:
    """Return a pax record. Its length includes the digits of the length."""
    bare = len(key) + len(value) + 3
    size = bare + len(str(bare))
    size = bare + len(str(size))
    return b"%d %b=%b\n" % (size, key, value)


def _extension(kind: bytes, text: bytes) -> bytes:
    head = _block(Entry(b"././@LongLink", kind, 0, 0, len(text), b""))
    return head + text + bytes(-len(text) % _BLOCK)


def _block(entry: Entry) -> bytes:
    """Return a header block. Uid, gid and all fields after the magic are zero."""
    name, kind, mode, mtime, size, link, _xattrs = entry
    length = b"%011o\0" % size if size < _OCTAL_SIZE else b"\x80" + size.to_bytes(11, "big")
    fields = b"%b%07o\x000000000\x000000000\x00%b%011o\x00        %b%b%b" % (
        name[:_NAME_LENGTH].ljust(_NAME_LENGTH, b"\0"),
        mode,
        length,
        mtime,
        kind,
        link[:_NAME_LENGTH].ljust(_NAME_LENGTH, b"\0"),
        _GNU,
    )
    # no header has so many high bytes that the sum reaches the modulus
    checksum = (zlib.adler32(fields) & _LOWER_HALF) - 1
    return b"%b%06o\0 %b%b" % (fields[:148], checksum, fields[156:], _PADDING)


_PADDING = bytes(_BLOCK - 265)
END = 2 * _ZEROS
