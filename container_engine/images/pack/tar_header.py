"""Parse and make the headers of entries in tar archives. Pure.

Whatever is not understood is an error: an entry that was passed over would be lost.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

FILE, HARD_LINK, SYMLINK, DIRECTORY, FIFO = b"0", b"1", b"2", b"5", b"6"
DEVICES = (b"3", b"4")
LONG_NAME, LONG_LINK, PAX, PAX_GLOBAL = b"L", b"K", b"x", b"g"
_PAX_OF_SOLARIS = b"X"
EXTENSIONS = frozenset((LONG_NAME, LONG_LINK, PAX, _PAX_OF_SOLARIS, PAX_GLOBAL))
SPARSE = b"S"
BLOCK = 512
ZEROS = bytes(BLOCK)
KIND = slice(156, 157)
MAX_SIZE, MAX_TIME = 1 << 62, (1 << 32) - 1
_NAME_LENGTH, _OCTAL_SIZE = 100, 1 << 33
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


class DamagedError(Exception):
    """Data that is not a complete tar archive, or not one that can be kept whole."""


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


def is_header(block: bytes) -> bool:
    """Check whether a block begins an entry; the oldest form has no mark but the sum."""
    if len(block) < BLOCK:
        return False
    try:
        _check_sum(block)
    except DamagedError:
        return False
    return True


def _check_sum(block: bytes) -> None:
    stated = block[_CHECKSUM]
    # the checksum counts its own field as blanks
    right = number(stated) - 8 * 0x20 + sum(stated)
    if (right + 1) % _ADLER_BASE == zlib.adler32(block) & _LOWER_HALF:
        return
    # some programs of old have added up signed bytes
    if right != sum(block) - 0x100 * sum(byte >= 0x80 for byte in block):
        raise DamagedError("a header's checksum is wrong")


def parse(block: bytes, extended: dict[bytes, bytes]) -> tuple[bytes, Entry]:
    _check_sum(block)
    name, link = block[:100].partition(b"\0")[0], block[157:257].partition(b"\0")[0]
    if block[345] and block[257:265].startswith(_USTAR):
        name = block[345:500].partition(b"\0")[0] + b"/" + name
    kind, length, when = block[156:157], number(block[124:136]), number(block[136:148])
    mode, xattrs = number(block[100:108]) & 0o7777, _NONE
    if kind in EXTENSIONS:
        return kind, Entry(name, kind, mode, 0, _size(length), link)
    if extended:
        # a record without a value leaves what the header says
        name, link = extended.get(b"path") or name, extended.get(b"linkpath") or link
        try:
            length = _decimal(extended[b"size"]) if extended.get(b"size") else length
            when = int(float(extended.get(b"mtime") or when))
        except (ValueError, OverflowError):
            raise DamagedError("its extended headers have an invalid number") from None
        xattrs = _kept_xattrs(extended)
    kind = _kind(kind, name)
    length = _size(length) if kind == FILE else 0
    return kind, Entry(name, kind, mode, min(max(when, 0), MAX_TIME), length, link, xattrs)


def _decimal(text: bytes) -> int:
    """Parse digits alone, as other readers do; int() takes more. Raise ValueError."""
    if not text.isdigit():
        raise ValueError(text)
    return int(text)


def _size(length: int) -> int:
    if not 0 <= length <= MAX_SIZE:
        raise DamagedError("a file has an impossible size")
    return length


def _kept_xattrs(records: dict[bytes, bytes]) -> Xattrs:
    """Return the extended attributes in pax records that an image keeps."""
    named = ((key.removeprefix(_XATTR), key, value) for key, value in records.items())
    return tuple(
        (name, value)
        for name, key, value in named
        # a record without a value removes the attribute
        if value and name != key and name.startswith(_KEPT) and not name.startswith(_NOT_KEPT)
    )


def _kind(kind: bytes, name: bytes) -> bytes:
    if kind in {b"\0", b"7", SPARSE, FILE}:
        return DIRECTORY if kind == b"\0" and name.endswith(b"/") else FILE
    if kind in {HARD_LINK, SYMLINK, DIRECTORY, FIFO, *DEVICES}:
        return kind
    raise DamagedError(f"an entry of the unknown type {kind.decode('latin-1')!r}")


def number(field: bytes) -> int:
    """Parse octal digits, or GNU's binary form for numbers that do not fit."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big")
        bits = 8 * len(field)
        # the first bit only marks the form, the second is the sign
        return value - (1 << bits) if field[0] & 0x40 else value - (1 << (bits - 1))
    # behind the end some writers leave what was there before
    digits = field.lstrip(b"\0 ").partition(b"\0")[0].rstrip(b" ") or b"0"
    try:
        if digits.isdigit():  # int() takes signs and underscores as well
            return int(digits, 8)
    except ValueError:
        pass
    raise DamagedError("a header has an invalid number")


def pax_records(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    while text:
        length, blank, _rest = text.partition(b" ")
        if not blank or not length.isdigit() or not 0 < int(length) <= len(text):
            raise DamagedError("its extended headers cannot be read")
        record, text = text[len(length) + 1 : int(length)], text[int(length) :]
        key, equals, value = record.partition(b"=")
        if not equals or not key or not value.endswith(b"\n"):
            raise DamagedError("its extended headers cannot be read")
        yield key, value[:-1]


def header(entry: Entry) -> bytes:
    """Return the header of an entry in GNU's format, with root as the owner."""
    extra = b""
    if entry.xattrs:
        extra += _extension(PAX, b"".join(_pax_record(_XATTR + n, v) for n, v in entry.xattrs))
    if len(entry.link) > _NAME_LENGTH:
        extra += _extension(LONG_LINK, entry.link + b"\0")
    if len(entry.name) > _NAME_LENGTH:
        extra += _extension(LONG_NAME, entry.name + b"\0")
    return extra + _block(entry)


def _pax_record(key: bytes, value: bytes) -> bytes:
    """Return a pax record. Its length includes the digits of the length."""
    bare = len(key) + len(value) + 3
    size = bare + len(str(bare))
    size = bare + len(str(size))
    return b"%d %b=%b\n" % (size, key, value)


def _extension(kind: bytes, text: bytes) -> bytes:
    head = _block(Entry(b"././@LongLink", kind, 0, 0, len(text), b""))
    return head + text + bytes(-len(text) % BLOCK)


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


_PADDING = bytes(BLOCK - 265)
END = 2 * ZEROS
