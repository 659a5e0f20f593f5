"""Layer files as streams of their uncompressed bytes, and whether they are what they should be."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
import zlib
from typing import IO, TYPE_CHECKING

from container_engine import process
from container_engine.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_ANY_GZIP = 31  # zlib's number for a gzip header and the largest window
_PIECE = 1 << 18
_BUFFER = 1 << 20
_TIMEOUT_S = 24 * 3600  # the import as a whole has the true limit


@contextlib.contextmanager
def plain(path: str, env: Mapping[str, str], on_read: Callable[[int], None]) -> Iterator[IO[bytes]]:
    """The uncompressed content of the layer file `path`; `on_read` hears of each piece's size.

    `env` is the environment for zstd. When the body ends, the rest is read, so that damage behind
    it is found as well. Raises UserError for damage.
    """
    with open(path, "rb", buffering=0) as blob:
        magic = os.pread(blob.fileno(), 4, 0)
        try:
            with _decompressed(blob, magic, env, on_read) as stream:
                yield stream
                while stream.read(_BUFFER):
                    pass
        except (zlib.error, EOFError, process.CommandError) as error:
            raise UserError(f"layer {path}: damaged: {error}") from None


def _decompressed(
    blob: IO[bytes], magic: bytes, env: Mapping[str, str], on_read: Callable[[int], None]
) -> contextlib.AbstractContextManager[IO[bytes]]:
    if magic.startswith(_GZIP):
        return _from_thread(lambda out: _inflate(blob, out, on_read))
    if magic == _ZSTD:
        return _by_zstd(blob, env, on_read)
    return _from_thread(lambda out: _pass_on(blob, out, on_read))


@contextlib.contextmanager
def _by_zstd(
    blob: IO[bytes], env: Mapping[str, str], on_read: Callable[[int], None]
) -> Iterator[IO[bytes]]:
    with (
        _from_thread(lambda out: _pass_on(blob, out, on_read)) as compressed,
        process.reading(["zstd", "-dcq"], env, _TIMEOUT_S, compressed) as stream,
    ):
        yield stream


@contextlib.contextmanager
def _from_thread(produce: Callable[[int], None]) -> Iterator[IO[bytes]]:
    """What `produce` writes to a descriptor, in a thread, which keeps Python little."""
    end, start = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # users have a limit for this, and it is only quicker
        fcntl.fcntl(start, fcntl.F_SETPIPE_SZ, _BUFFER)
    failed: list[Exception] = []

    def run() -> None:
        try:
            produce(start)
        except BrokenPipeError:
            pass  # the reader has given up and says why
        except Exception as error:  # noqa: BLE001 - raised again where somebody reads
            failed.append(error)
        finally:
            os.close(start)

    thread = threading.Thread(target=run, daemon=True)
    with open(end, "rb", buffering=_BUFFER) as stream:
        thread.start()
        yield stream
    thread.join()
    if failed:
        raise failed[0]


def _inflate(blob: IO[bytes], out: int, on_read: Callable[[int], None]) -> None:
    """A gzip file may have several members, as parallel compressors write them."""
    inflater = zlib.decompressobj(_ANY_GZIP)
    while data := blob.read(_PIECE):
        on_read(len(data))
        while data:
            if inflater.eof:
                inflater = zlib.decompressobj(_ANY_GZIP)
            _write(out, inflater.decompress(data))
            data = inflater.unused_data
            if data and not data.strip(b"\0"):
                break  # padding
    if not inflater.eof:
        raise EOFError("it ends too early")


def _pass_on(blob: IO[bytes], out: int, on_read: Callable[[int], None]) -> None:
    while data := blob.read(_PIECE):
        on_read(len(data))
        _write(out, data)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Verification:
    """Compares files with the SHA-256 digests that are their names, beside other work."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._wrong: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(paths,), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Raises UserError for the files that are wrong; they are removed."""
        self._thread.join()
        for path in self._wrong:
            with contextlib.suppress(OSError):
                os.unlink(path)
        if self._wrong:
            raise UserError(
                f"layer {self._wrong[0]}: not what its digest says", "it was removed, try again"
            )

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                good = sha256(path, self._stop.is_set) in {None, os.path.basename(path)}
            except OSError:
                good = True  # whoever reads it for its content says what is wrong
            if not good:
                self._wrong.append(path)


def sha256(path: str, is_stopped: Callable[[], bool] = lambda: False) -> str | None:
    """The digest of a file in hexadecimal; None if `is_stopped` said so on the way."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_BUFFER):
            if is_stopped():
                return None
            digest.update(data)
    return digest.hexdigest()
