"""Read tar archives quickly as streams of bytes, one header after the other.

Python's own module takes ten times as long for an archive of many small files, and ends silently
at damage after the first member. Here, whatever is not read as an entry is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from container_engine.images.pack import tar_sparse
from container_engine.images.pack.chunks import Stream
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
        self._sparse: tar_sparse.Sparse | None = None

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
            if block[KIND] == SPARSE or (extended and tar_sparse.is_sparse(extended)):
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
            records = tar_sparse.records(list(pax_records(text)))
            if kind != PAX_GLOBAL:
                extended.update(records)
            elif records.keys() & {b"path", b"linkpath", b"size"} or tar_sparse.is_sparse(records):
                raise DamagedError("a global header describes a single file")

    def _with_holes(self, entry: Entry, block: bytes, extended: dict[bytes, bytes]) -> Entry:
        try:
            if block[KIND] == SPARSE:
                # the rest of the map lies between header and content, and is not counted
                sparse = tar_sparse.in_header(block, self._next_block, number)
            else:
                sparse = tar_sparse.in_records(extended, self._content_block)
        except (ValueError, KeyError) as error:
            raise DamagedError(f"a sparse file's map cannot be read: {error}") from None
        if sparse.size - sparse.holes != self._content or sparse.size > MAX_SIZE:
            raise DamagedError("a sparse file's map does not fit what is stored")
        self._sparse = sparse
        name = extended.get(tar_sparse.PREFIX + b"name") or entry.name
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
