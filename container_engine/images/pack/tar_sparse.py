"""Read the maps of sparse files in tar archives, in GNU's four forms. Pure.

A map names the pieces of a file that the archive holds; everything else in the file is zeros. All
functions raise ValueError for a map that does not describe a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

PREFIX = b"GNU.sparse."
# The old form has fields of the header instead of pax records.
OLD_MAP, OLD_GOES_ON, OLD_SIZE = slice(386, 482), 482, slice(483, 495)
_FIELD, _BLOCK_MAP, _BLOCK_GOES_ON = 12, 504, 504
_MAX_MAP = 1 << 20  # bytes
# The oldest form of pax records has one record for each number, with the same keys again.
_REPEATED = (PREFIX + b"offset", PREFIX + b"numbytes")
_MAP = PREFIX + b"map"


class Sparse(NamedTuple):
    """A file of `size` bytes, and the offset and length of each piece that is stored."""

    size: int
    pieces: tuple[tuple[int, int], ...]

    @property
    def holes(self) -> int:
        """Return the number of bytes that are not stored."""
        return self.size - sum(length for _offset, length in self.pieces)


def records(pairs: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return pax records by key; the numbers of a map in the oldest form become one record."""
    found = dict(pairs)
    numbers = [value for key, value in pairs if key in _REPEATED]
    if numbers:
        found[_MAP] = b",".join(numbers)
    return found


def is_sparse(extended: Mapping[bytes, bytes]) -> bool:
    return any(key.startswith(PREFIX) for key in extended)


def in_records(extended: Mapping[bytes, bytes], block: Callable[[], bytes]) -> Sparse:
    """Return the map in pax records, or of form 1.0, which `block` reads from the content."""
    version = tuple(extended.get(PREFIX + key, b"0") for key in (b"major", b"minor"))
    if version == (b"1", b"0"):
        return _checked(extended[PREFIX + b"realsize"], _from_content(block))
    if version[0] != b"0":
        raise ValueError(f"a sparse file of the unknown form {version[0].decode()!r}")
    size = extended.get(PREFIX + b"size", extended.get(PREFIX + b"realsize", b""))
    text = extended.get(_MAP, b"")
    return _checked(size, text.split(b",") if text else [])


def in_header(head: bytes, block: Callable[[], bytes], number: Callable[[bytes], int]) -> Sparse:
    """Return the map in an old header, which `block` reads on; `number` parses a field."""
    text, goes_on = head[OLD_MAP], head[OLD_GOES_ON]
    while goes_on:
        more = block()
        text, goes_on = text + more[:_BLOCK_MAP], more[_BLOCK_GOES_ON]
        if len(text) > _MAX_MAP:
            raise ValueError("the map of a sparse file is too long")
    fields = [text[at : at + _FIELD] for at in range(0, len(text) - _FIELD + 1, _FIELD)]
    used = [field for at in range(0, len(fields) - 1, 2) for field in _pair(fields, at)]
    return _checked(number(head[OLD_SIZE]), [number(field) for field in used])


def _pair(fields: Sequence[bytes], at: int) -> Sequence[bytes]:
    """Return the two fields of a piece, none for one that is not used."""
    return fields[at : at + 2] if fields[at + 1][0] else ()


def _from_content(block: Callable[[], bytes]) -> list[bytes]:
    """Return the numbers before the content: how many pieces there are, then their numbers."""
    text, wanted = b"", 1
    while text.count(b"\n") < wanted:
        text += block()
        if len(text) > _MAX_MAP:
            raise ValueError("the map of a sparse file is too long")
        count, line, _rest = text.partition(b"\n")
        if line:
            wanted = 1 + 2 * int(count)
    return text.split(b"\n")[1:wanted]


def _checked(size: bytes | int, numbers: Sequence[bytes | int]) -> Sparse:
    whole, said = int(size), [int(number) for number in numbers]
    if len(said) % 2:
        raise ValueError("the map of a sparse file has an odd number of fields")
    end = 0
    for offset, length in zip(said[::2], said[1::2], strict=True):
        if offset < end or length < 0 or offset + length > whole:
            raise ValueError("the map of a sparse file does not fit its size")
        end = offset + length
    return Sparse(whole, tuple(zip(said[::2], said[1::2], strict=True)))
