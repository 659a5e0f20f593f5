"""Read tar archives quickly as streams of bytes, one header after the other.

Python's own module takes ten times as long for an archive of many small files, and ends silently
at damage after the first member. Here, whatever is not read as an entry is an error.

The map of a sparse file, in one of GNU's four forms, names the pieces of the file that the archive
holds; everything else in the file is zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from container_engine.images.pack.tar_header import (
    BLOCK,
    EXTENSIONS,
    KIND,
    LONG_LINK,
    LONG_NAME,
    MAX_SIZE,
    PAX_GLOBAL,
    SPARSE,
    ZEROS,
    DamagedError,
    Entry,
    is_header,
    number,
    parse,
    pax_records,
)


class Stream:
    """A stream of the bytes that an iterator yields."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._piece = b""
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes, or fewer at the end of the stream."""
        at = self._at
        if at + size <= len(self._piece):
            self._at = at + size
            return self._piece[at : self._at]
        found = []
        while size and (part := self.some(size)):
            found.append(part)
            size -= len(part)
        return b"".join(found)

    def some(self, size: int) -> memoryview:
        """Return up to `size` bytes without copying them; none at the end of the stream."""
        while self._at >= len(self._piece):
            piece = next(self._pieces, None)
            if piece is None:
                return memoryview(b"")
            self._piece, self._at = piece, 0
        found = memoryview(self._piece)[self._at : self._at + size]
        self._at += len(found)
        return found

    def drain(self) -> None:
        """Read to the end of the stream, so that damage there is found."""
        while self.some(1 << 30):
            pass


_SPARSE = b"GNU.sparse."
# The old form has fields of the header instead of pax records.
_OLD_MAP, _OLD_GOES_ON, _OLD_SIZE = slice(386, 482), 482, slice(483, 495)
_FIELD, _BLOCK_MAP, _BLOCK_GOES_ON = 12, 504, 504
_MAX_MAP = 1 << 20  # bytes
# The oldest form of pax records has one record for each number, with the same keys again.
_REPEATED = (_SPARSE + b"offset", _SPARSE + b"numbytes")
_MAP = _SPARSE + b"map"


class _Sparse(NamedTuple):
    """A file of `size` bytes, and the offset and length of each piece that is stored."""

    size: int
    pieces: tuple[tuple[int, int], ...]

    @property
    def holes(self) -> int:
        """Return the number of bytes that are not stored."""
        return self.size - sum(length for _offset, length in self.pieces)


def _records(pairs: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return pax records by key; the numbers of a map in the oldest form become one record."""
    found = dict(pairs)
    numbers = [value for key, value in pairs if key in _REPEATED]
    if numbers:
        found[_MAP] = b",".join(numbers)
    return found


def _is_sparse(extended: Mapping[bytes, bytes]) -> bool:
    return any(key.startswith(_SPARSE) for key in extended)


def _in_records(extended: Mapping[bytes, bytes], block: Callable[[], bytes]) -> _Sparse:
    """Return the map in pax records, or of form 1.0, which `block` reads from the content."""
    version = tuple(extended.get(_SPARSE + key, b"0") for key in (b"major", b"minor"))
    if version == (b"1", b"0"):
        return _checked(extended[_SPARSE + b"realsize"], _from_content(block))
    if version[0] != b"0":
        raise ValueError(f"a sparse file of the unknown form {version[0].decode()!r}")
    size = extended.get(_SPARSE + b"size", extended.get(_SPARSE + b"realsize", b""))
    text = extended.get(_MAP, b"")
    return _checked(size, text.split(b",") if text else [])


def _in_header(head: bytes, block: Callable[[], bytes], number: Callable[[bytes], int]) -> _Sparse:
    """Return the map in an old header, which `block` reads on; `number` parses a field."""
    text, goes_on = head[_OLD_MAP], head[_OLD_GOES_ON]
    while goes_on:
        more = block()
        text, goes_on = text + more[:_BLOCK_MAP], more[_BLOCK_GOES_ON]
        if len(text) > _MAX_MAP:
            raise ValueError("the map of a sparse file is too long")
    fields = [text[at : at + _FIELD] for at in range(0, len(text) - _FIELD + 1, _FIELD)]
    used = [field for at in range(0, len(fields) - 1, 2) for field in _pair(fields, at)]
    return _checked(number(head[_OLD_SIZE]), [number(field) for field in used])


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


def _checked(size: bytes | int, numbers: Sequence[bytes | int]) -> _Sparse:
    whole, said = int(size), [int(number) for number in numbers]
    if len(said) % 2:
        raise ValueError("the map of a sparse file has an odd number of fields")
    end = 0
    for offset, length in zip(said[::2], said[1::2], strict=True):
        if offset < end or length < 0 or offset + length > whole:
            raise ValueError("the map of a sparse file does not fit its size")
        end = offset + length
    return _Sparse(whole, tuple(zip(said[::2], said[1::2], strict=True)))


_HOLE = bytes(1 << 20)
_MAX_EXTENSION = 1 << 20  # bytes of a name or of pax records


class Out(Protocol):
    """An object to which an archive is written."""

    def write(self, piece: bytes | memoryview, /) -> object: ...


class Reader:
    """An iterator over the entries of an archive.

    Read the content of an entry with `copy` before the next entry, or it is skipped. `on_entry` is
    called for each entry with the bytes that it has beyond those in the archive; it may raise.
    Raise DamagedError for anything that is neither an entry nor the archive's end.
    """

    def __init__(
        self, stream: Stream, on_entry: Callable[[int], None] = lambda _holes: None
    ) -> None:
        self._stream, self._on_entry = stream, on_entry
        self._left = 0  # bytes up to the next header
        self._content = 0  # those of them that are not padding
        self._sparse: _Sparse | None = None

    def __iter__(self) -> Iterator[Entry]:
        extended: dict[bytes, bytes] = {}
        is_extended = False
        while True:
            self._skip()
            block = self._stream.take(BLOCK)
            if not block or block == ZEROS:
                if is_extended:
                    raise DamagedError("it ends where the entry of an extended header should be")
                self._check_end()
                return
            if len(block) < BLOCK:
                raise _cut_short()
            kind, entry = parse(block, extended)
            self._content = entry.size
            self._left = -(-entry.size // BLOCK) * BLOCK
            if kind in EXTENSIONS:
                self._extend(extended, kind)
                is_extended = is_extended or kind != PAX_GLOBAL
                continue
            if block[KIND] == SPARSE or (extended and _is_sparse(extended)):
                entry = self._with_holes(entry, block, extended)
            extended, is_extended = ({}, False) if is_extended else (extended, False)
            self._on_entry(0 if self._sparse is None else self._sparse.holes)
            yield entry

    def copy(self, out: Out) -> None:
        """Write the content of the last entry, padded as in a tar archive."""
        if self._sparse is None:
            for piece in self._rest():
                out.write(piece)
            return
        at, sparse = 0, self._sparse
        for offset, length in sparse.pieces:
            _write_zeros(out, offset - at)
            for piece in self._some(length):
                out.write(piece)
            at = offset + length
        _write_zeros(out, -(-sparse.size // BLOCK) * BLOCK - at)

    def _check_end(self) -> None:
        """Raise DamagedError if the zeros just read do not end the archive.

        What may follow is undefined and ignored, but for more entries, which would be lost.
        """
        block = self._stream.take(BLOCK)
        if block.strip(b"\0"):
            raise DamagedError("a single block of zeros, and data after it")
        while block := self._stream.take(BLOCK):
            if block != ZEROS and is_header(block):
                raise DamagedError("a second archive follows its end")

    def _extend(self, extended: dict[bytes, bytes], kind: bytes) -> None:
        if self._content > _MAX_EXTENSION:
            raise DamagedError("an extended header is too long")
        text = self._stream.take(self._left)
        if len(text) < self._left:
            raise _cut_short()
        text, self._left = text[: self._content], 0
        if kind == LONG_NAME:
            extended[b"path"] = text.partition(b"\0")[0]
        elif kind == LONG_LINK:
            extended[b"linkpath"] = text.partition(b"\0")[0]
        else:
            records = _records(list(pax_records(text)))
            if kind != PAX_GLOBAL:
                extended.update(records)
            elif records.keys() & {b"path", b"linkpath", b"size"} or _is_sparse(records):
                raise DamagedError("a global header describes a single file")

    def _with_holes(self, entry: Entry, block: bytes, extended: dict[bytes, bytes]) -> Entry:
        try:
            if block[KIND] == SPARSE:
                # the rest of the map lies between header and content, and is not counted
                sparse = _in_header(block, self._next_block, number)
            else:
                sparse = _in_records(extended, self._content_block)
        except (ValueError, KeyError) as error:
            raise DamagedError(f"a sparse file's map cannot be read: {error}") from None
        if sparse.size - sparse.holes != self._content or sparse.size > MAX_SIZE:
            raise DamagedError("a sparse file's map does not fit what is stored")
        self._sparse = sparse
        name = extended.get(_SPARSE + b"name") or entry.name
        return entry._replace(name=name, size=sparse.size)

    def _next_block(self) -> bytes:
        block = self._stream.take(BLOCK)
        if len(block) < BLOCK:
            raise _cut_short()
        return block

    def _content_block(self) -> bytes:
        if self._content < BLOCK:
            raise _cut_short()
        self._content -= BLOCK
        self._left -= BLOCK
        return self._next_block()

    def _rest(self) -> Iterator[memoryview]:
        return self._some(self._left)

    def _some(self, size: int) -> Iterator[memoryview]:
        while size:
            piece = self._stream.some(size)
            if not piece:
                raise _cut_short()
            size -= len(piece)
            self._left -= len(piece)
            yield piece

    def _skip(self) -> None:
        for _piece in self._rest():
            pass
        self._sparse = None


def _write_zeros(out: Out, size: int) -> None:
    while size > 0:
        out.write(_HOLE[:size])
        size -= len(_HOLE)


def _cut_short() -> DamagedError:
    return DamagedError("it is cut short")
