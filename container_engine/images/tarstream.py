"""Tar archives as streams of bytes, read and written quickly: one header after the other.

Python's own module takes ten times as long for an archive of many small files. What is rare (sparse
files, headers of other vendors) raises UnusualError: `layers.py` reads such archives, too.
"""

from __future__ import annotations

import struct
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE, HARD_LINK, SYMLINK, DIRECTORY, FIFO = b"0", b"1", b"2", b"5", b"6"
_DEVICES = (b"3", b"4")
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL = b"L", b"K", b"x", b"g"
_BLOCK, _PIECE = 512, 1 << 20
_ZEROS = bytes(_BLOCK)
_MAX_EXTENSION = 1 << 20  # bytes of a name or of pax records
_NAME_LENGTH = 100
_OCTAL_SIZE, _MAX_TIME = 1 << 33, (1 << 32) - 1
# name mode uid gid size mtime checksum type link magic uname gname major minor prefix
_HEADER = struct.Struct("<100s8s8s8s12s12s8sc100s8s32s32s8s8s155s12x")
_GNU, _USTAR = b"ustar  \0", b"ustar\0"
_CHECKSUM_AT = slice(148, 156)


class UnusualError(Exception):
    """An archive that only the slower way understands. No message for people."""


class DamagedError(Exception):
    """Not a tar archive, or not all of it."""


class Entry(NamedTuple):
    """`name` and `link` as the archive has them. Times in whole seconds."""

    name: bytes
    kind: bytes
    mode: int
    mtime: int
    size: int
    link: bytes


class Reader:
    """The entries of an archive. The content of one must be read before the next is asked for,
    with `copy`, or it is skipped. Devices are left out."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = 0  # bytes up to the next header
        self._content = 0

    def __iter__(self) -> Iterator[Entry]:
        extended: dict[bytes, bytes] = {}
        while True:
            self._skip()
            block = self._exactly(_BLOCK, at_end=True)
            if not block or block == _ZEROS:
                return
            kind, entry = _parse(block, extended)
            self._content = entry.size
            self._left = -(-entry.size // _BLOCK) * _BLOCK
            if kind in {_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL}:
                self._extend(extended, kind)
                continue
            extended = {}
            if kind not in _DEVICES:
                yield entry

    def copy(self, out: IO[bytes]) -> None:
        """Writes the content of the last entry, padded as a tar archive has it."""
        while self._left:
            piece = self._exactly(min(self._left, _PIECE))
            self._left -= len(piece)
            out.write(piece)

    def _extend(self, extended: dict[bytes, bytes], kind: bytes) -> None:
        if self._content > _MAX_EXTENSION:
            raise UnusualError
        text = self._exactly(self._left)[: self._content]
        self._left = 0
        if kind == _LONG_NAME:
            extended[b"path"] = text.rstrip(b"\0")
        elif kind == _LONG_LINK:
            extended[b"linkpath"] = text.rstrip(b"\0")
        else:
            records = dict(_pax_records(text))
            if any(key.startswith(b"GNU.sparse") for key in records):
                raise UnusualError
            if kind == _PAX_GLOBAL and records.keys() & {b"path", b"linkpath", b"size"}:
                raise UnusualError
            if kind == _PAX:
                extended.update(records)

    def _skip(self) -> None:
        while self._left:
            self._left -= len(self._exactly(min(self._left, _PIECE)))

    def _exactly(self, size: int, *, at_end: bool = False) -> bytes:
        data = self._stream.read(size)
        if len(data) == size or (at_end and not data):
            return data
        raise DamagedError("it ends in the middle")


def _parse(block: bytes, extended: dict[bytes, bytes]) -> tuple[bytes, Entry]:
    fields = _HEADER.unpack(block)
    name, mode, size, mtime, checksum = fields[0], fields[1], fields[4], fields[5], fields[6]
    kind, link, magic, prefix = fields[7], fields[8], fields[9], fields[14]
    # the sum counts its own field as blanks
    if _number(checksum) != sum(block) - sum(block[_CHECKSUM_AT]) + 8 * 0x20:
        raise DamagedError("a header's checksum is wrong")
    name, link = name.partition(b"\0")[0], link.partition(b"\0")[0]
    if magic.startswith(_USTAR) and prefix[0]:
        name = prefix.partition(b"\0")[0] + b"/" + name
    is_extension = kind in {_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL}
    length = _number(size)
    if not is_extension:
        name, link = extended.get(b"path", name), extended.get(b"linkpath", link)
        length = int(extended.get(b"size", length))
        kind = _kind(kind, name)
        length = length if kind == FILE else 0
    when = float(extended[b"mtime"]) if b"mtime" in extended else _number(mtime)
    when = min(max(int(when), 0), _MAX_TIME)
    return kind, Entry(name, kind, _number(mode) & 0o7777, when, length, link)


def _kind(kind: bytes, name: bytes) -> bytes:
    if kind in {b"\0", b"7", FILE}:
        return DIRECTORY if kind == b"\0" and name.endswith(b"/") else FILE
    if kind in {HARD_LINK, SYMLINK, DIRECTORY, FIFO, *_DEVICES}:
        return kind
    raise UnusualError


def _number(field: bytes) -> int:
    """Octal digits, or GNU's binary form for what they cannot say."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big")
        bits = 8 * len(field)
        # the first bit only marks the form, the second is the sign
        return value - (1 << bits) if field[0] & 0x40 else value - (1 << (bits - 1))
    try:
        return int(field.strip(b"\0 ") or b"0", 8)
    except ValueError:
        raise DamagedError("a header has no number where one belongs") from None


def _pax_records(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    while text:
        length, blank, _rest = text.partition(b" ")
        if not blank or not length.isdigit() or not 0 < int(length) <= len(text):
            raise DamagedError("its extended headers cannot be read")
        record, text = text[len(length) + 1 : int(length) - 1], text[int(length) :]
        key, _equals, value = record.partition(b"=")
        yield key, value


def header(entry: Entry) -> bytes:
    """What stands before the content of an entry that root owns, in GNU's format."""
    extra = b""
    if len(entry.link) > _NAME_LENGTH:
        extra += _extension(_LONG_LINK, entry.link)
    if len(entry.name) > _NAME_LENGTH:
        extra += _extension(_LONG_NAME, entry.name)
    return extra + _block(entry)


def _extension(kind: bytes, text: bytes) -> bytes:
    head = _block(Entry(b"././@LongLink", kind, 0, 0, len(text) + 1, b""))
    return head + text + bytes(_BLOCK - len(text) % _BLOCK)


def _block(entry: Entry) -> bytes:
    small = entry.size < _OCTAL_SIZE
    size = b"%011o\0" % entry.size if small else b"\x80" + entry.size.to_bytes(11, "big")
    fields = [
        entry.name[:_NAME_LENGTH],
        b"%07o\0" % entry.mode,
        b"0000000\0",
        b"0000000\0",
        size,
        b"%011o\0" % entry.mtime,
        b" " * 8,
        entry.kind,
        entry.link[:_NAME_LENGTH],
        _GNU,
        *[b""] * 5,
    ]
    block = bytearray(_HEADER.pack(*fields))
    block[_CHECKSUM_AT] = b"%06o\0 " % sum(block)
    return bytes(block)


END = 2 * _ZEROS
