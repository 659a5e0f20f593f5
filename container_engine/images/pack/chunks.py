"""Streams of bytes in pieces of any size, passed on without being joined or copied."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

_AHEAD = 8  # pieces, of a few MiB at most
_ONCE, _MANY = 1 << 20, 512  # bytes and pieces to write at once; one call may write 1024 pieces
_NOTICE_S = 0.2


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


class Gather:
    """A writer of pieces to a descriptor, many with one call. Call `flush` at the end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: list[bytes | memoryview] = []
        self._size = 0

    def write(self, piece: bytes | memoryview) -> None:
        self._waiting.append(piece)
        self._size += len(piece)
        if self._size >= _ONCE or len(self._waiting) >= _MANY:
            self.flush()

    def flush(self) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        while waiting:
            written = os.writev(self._fd, waiting)
            done = 0
            while done < len(waiting) and written >= len(waiting[done]):
                written -= len(waiting[done])
                done += 1
            del waiting[:done]
            if written:
                waiting[0] = memoryview(waiting[0])[written:]


class _End:
    pass


_END: Final = _End()


class Ahead:
    """The items of `pieces`, produced ahead in a thread, which `close` must end.

    `close` calls `wake` first, because `pieces` may be waiting for something.
    """

    def __init__(self, pieces: Iterator[bytes], wake: Callable[[], None]) -> None:
        self._pieces, self._wake = pieces, wake
        self._made: queue.Queue[bytes | Exception | _End] = queue.Queue(_AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            made = self._made.get()
            if isinstance(made, _End):
                return
            if isinstance(made, Exception):
                raise made
            yield made

    def close(self) -> None:
        self._closed.set()
        self._wake()
        self._thread.join()

    def _run(self) -> None:
        try:
            for piece in self._pieces:
                if not self._put(piece):
                    return
            self._put(_END)
        except Exception as error:  # noqa: BLE001 - raised again by the reader
            self._put(error)

    def _put(self, made: bytes | Exception | _End) -> bool:
        while not self._closed.is_set():
            try:
                self._made.put(made, timeout=_NOTICE_S)
            except queue.Full:
                continue
            return True
        return False
