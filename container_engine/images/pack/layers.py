"""Read layer files as streams of uncompressed bytes, and verify their digests."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from container_engine.base import process
from container_engine.base.errors import UserError
from container_engine.images import digests
from container_engine.images.pack.tar_header import DamagedError
from container_engine.images.pack.tar_stream import Reader, Stream
from container_engine.images.squashfs import MADE_SO

if TYPE_CHECKING:
    import hashlib

    from container_engine.images.policy import Account

_AHEAD = 8  # pieces, of a few MiB at most
_NOTICE_S = 0.2


class _End:
    pass


_END: Final = _End()


class _Ahead:
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


_InflateError: type[Exception]
try:
    # twice as fast as zlib, but not available for every architecture
    from isal.isal_zlib import IsalError, compressobj, decompressobj

    _InflateError = IsalError  # type: ignore[assignment]  # its stub takes the class for an object
except ImportError:
    _InflateError = zlib.error
    compressobj, decompressobj = zlib.compressobj, zlib.decompressobj  # type: ignore[assignment]


# zstd begins with a frame of data, or with one to be skipped, as pzstd writes it
_COMPRESSED = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "bzip2": re.compile(rb"BZh[1-9]1AY&SY"),
}
_GZIP = 31  # zlib's number for a gzip header and the largest window
_PIECE = 1 << 17
_MOST = 1 << 20  # bytes decompressed at once: compressed zeros become a thousand times as long
_MEMORY = 1 << 30  # bytes
_BUFFER = 1 << 20
_TIMEOUT_S = 24 * 3600  # the actual limit is that of the import as a whole


class Reading(Protocol):
    """An open layer file. A read may wait for bytes; `wake` makes it return b""."""

    def read(self, size: int, /) -> bytes: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


class Layer(Protocol):
    """A layer file, which may still be arriving. `path` is its final path.

    `content` is the digest that its uncompressed content must have, "" for any: the diff_id of the
    image's configuration.
    """

    @property
    def path(self) -> str: ...
    @property
    def content(self) -> str: ...
    def open(self) -> Reading: ...
    def whole(self) -> str:
        """Return the path once the file is complete."""
        ...


class LayerFile:
    """A layer whose file is complete."""

    def __init__(self, path: str, content: str = "") -> None:
        self.path, self.content = path, content

    def open(self) -> Reading:
        return _FileReading(self.path)

    def whole(self) -> str:
        return self.path


class _FileReading:
    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - `close` closes it
        self.read, self.close = self._file.read, self._file.close

    def wake(self) -> None:
        pass


def compressor(head: bytes) -> str:
    """Return the program that has compressed data with this beginning, "" if none has."""
    return next((name for name, magic in _COMPRESSED.items() if magic.match(head)), "")


@contextlib.contextmanager
def entries(
    layer: Layer,
    env: Mapping[str, str],
    account: Account | None = None,
    on_read: Callable[[int], None] = lambda _size: None,
) -> Iterator[Reader]:
    """Yield a reader of the layer's entries, which are counted in `account`.

    The other arguments are those of `plain`. Raise UserError for damage of any kind.
    """
    counted = (account.take,) if account is not None else ()
    with plain(layer, env, on_read, *counted) as stream:
        try:
            yield Reader(stream, *(() if account is None else (account.enter,)))
        except (DamagedError, ValueError) as error:
            # the decompressor's error for a damaged layer is closer to the cause
            stream.drain()
            raise UserError(f"layer {layer.path}: damaged: {error}", see="image-damaged") from None


@contextlib.contextmanager
def plain(
    layer: Layer,
    env: Mapping[str, str],
    on_read: Callable[[int], None],
    on_made: Callable[[int], None] = lambda _size: None,
) -> Iterator[Stream]:
    """Yield the uncompressed content of the layer.

    `on_read` is called with the size of each piece that was read, `on_made` with that of each piece
    that was decompressed; it may raise. `env` is the environment for zstd. When the body ends, the
    rest is read, so that damage there is found as well. Raise UserError for damage.
    """
    digest = _digest(layer)
    with contextlib.closing(layer.open()) as reading:
        try:
            magic = reading.read(_PIECE)
            kind = compressor(magic)
            pieces = _pieces(reading, magic, on_read)
            with _decompressed(pieces, kind, env, reading.wake, digest) as made:
                stream = Stream(_counted(made, on_made))
                yield stream
                stream.drain()
            _check_content(layer, digest)
        except ImportError:
            message = f"layer {layer.path}: compressed with {kind}, which this Python cannot read"
            raise UserError(
                message, "make it with layers in gzip or zstd", "image-format"
            ) from None
        except (_InflateError, EOFError, process.CommandError) as error:
            raise UserError(f"layer {layer.path}: damaged: {error}", see="image-damaged") from None


def _digest(layer: Layer) -> hashlib._Hash | None:
    if not layer.content:
        return None
    if not digests.is_digest(layer.content):
        message = f"the digest of its content, '{layer.content}', is of an unknown kind"
        raise UserError(f"layer {layer.path}: {message}", see="image-format")
    return digests.begun(layer.content)


def _check_content(layer: Layer, digest: hashlib._Hash | None) -> None:
    if digest is None:
        return
    found = digests.named(digest)
    if found != layer.content:
        raise UserError(
            f"layer {layer.path}: its content has the digest {found}, and the image's"
            f" configuration says {layer.content}",
            MADE_SO,
            "image-damaged",
        )


def hashed(made: Iterator[bytes], digest: hashlib._Hash | None) -> Iterator[bytes]:
    """Yield what is made, and add it to the digest."""
    for piece in made:
        if digest is not None:
            digest.update(piece)
        yield piece


def gzipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Compress pieces; equal ones give equal bytes, since the header has neither name nor time."""
    packer = compressobj(wbits=_GZIP)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


def _counted(made: Iterator[bytes], on_made: Callable[[int], None]) -> Iterator[bytes]:
    for piece in made:
        on_made(len(piece))
        yield piece


def _pieces(reading: Reading, first: bytes, on_read: Callable[[int], None]) -> Iterator[bytes]:
    data = first
    while data:
        on_read(len(data))
        yield data
        data = reading.read(_PIECE)


@contextlib.contextmanager
def _decompressed(
    pieces: Iterator[bytes],
    kind: str,
    env: Mapping[str, str],
    wake: Callable[[], None],
    digest: hashlib._Hash | None,
) -> Iterator[Iterator[bytes]]:
    if kind == "zstd":
        with _by_zstd(pieces, env, wake) as made:
            yield hashed(made, digest)
        return
    made = _MAKERS[kind](pieces) if kind else pieces
    ahead = _Ahead(hashed(made, digest), wake)
    try:
        yield iter(ahead)
    finally:
        ahead.close()


def _inflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress gzip data, which may have several members, as parallel compressors write them."""
    inflater = decompressobj(_GZIP)
    for piece in pieces:
        data, has_more = piece, False
        while data or has_more:
            if inflater.eof:
                if not data.strip(b"\0"):
                    break  # padding
                inflater = decompressobj(_GZIP)
            made = inflater.decompress(data, _MOST)
            yield made
            data = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            has_more = len(made) == _MOST and not inflater.eof
    if not inflater.eof:
        raise EOFError("it ends too early")


def _of_xz(pieces: Iterator[bytes]) -> Iterator[bytes]:
    import lzma  # few layers need it

    # what `xz -9` needs is a tenth of it
    yield from _expanded(pieces, lambda: lzma.LZMADecompressor(memlimit=_MEMORY), lzma.LZMAError)


def _of_bzip2(pieces: Iterator[bytes]) -> Iterator[bytes]:
    import bz2

    yield from _expanded(pieces, bz2.BZ2Decompressor, OSError)


class _Expander(Protocol):
    """A decompressor of Python's for one stream."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def _expanded(
    pieces: Iterator[bytes], begun: Callable[[], _Expander], failure: type[Exception]
) -> Iterator[bytes]:
    """Decompress streams that follow one another, as parallel compressors write them."""
    expander = begun()
    for piece in pieces:
        data, has_more = piece, False
        while data or has_more:
            if expander.eof:
                data = data.lstrip(b"\0")  # padding
                if not data:
                    break
                expander = begun()
            try:
                made = expander.decompress(data, _MOST)
            except failure as error:
                raise EOFError(str(error)) from None
            yield made
            data = expander.unused_data if expander.eof else b""
            has_more = not expander.eof and not expander.needs_input
    if not expander.eof:
        raise EOFError("it ends too early")


_MAKERS: Mapping[str, Callable[[Iterator[bytes]], Iterator[bytes]]] = {
    "gzip": _inflated,
    "xz": _of_xz,
    "bzip2": _of_bzip2,
}


@contextlib.contextmanager
def _by_zstd(
    pieces: Iterator[bytes], env: Mapping[str, str], wake: Callable[[], None]
) -> Iterator[Iterator[bytes]]:
    """Decompress data with zstd, which reads from a pipe that a thread fills."""
    end, start = os.pipe2(os.O_CLOEXEC)
    process.widen(end)
    failed: list[Exception] = []

    def run() -> None:
        try:
            with open(start, "wb", buffering=0) as out:
                out.writelines(pieces)
        except BrokenPipeError:
            pass  # zstd reports why it ended
        except Exception as error:  # noqa: BLE001 - raised again by the reader
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    with open(end, "rb", buffering=0) as compressed:
        thread.start()
        try:
            with process.reading(["zstd", "-dcq"], env, _TIMEOUT_S, compressed) as stream:
                process.widen(stream.fileno())
                yield iter(lambda: os.read(stream.fileno(), _BUFFER), b"")
        finally:
            compressed.close()
            wake()
            thread.join()
            if failed:
                raise failed[0]


class Verification:
    """A thread that compares files with the digests that are their names."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._wrong: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(paths,), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the end; remove files with a wrong digest and raise UserError for them."""
        self._thread.join()
        for path in self._wrong:
            with contextlib.suppress(OSError):
                os.unlink(path)
        if self._wrong:
            raise UserError(
                f"layer {self._wrong[0]}: does not match its digest",
                "it was removed; try again",
                "image-damaged",
            )

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                good = digests.is_as_named(path, self._stop.is_set)
            except OSError:
                good = True  # the process that reads the content reports the error
            if not good:
                self._wrong.append(path)
