"""Download layers in the order of need, so that they can be read while they arrive.

skopeo as a proxy (`skopeo experimental-image-proxy`, from skopeo 1.6) provides the blobs as streams
and verifies their digests. Requests and answers are JSON texts, one per packet; a blob comes
through a pipe whose descriptor is in the answer. In this mode version 1.9 ignores policy.json, so
an import must run `skopeo copy` as well. This is only faster: if anything fails here,
`registry.Skopeo.copy` fetches what is missing, retries and reports errors.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self

from container_engine.base import process
from container_engine.base.errors import CeError
from container_engine.images.fetch.registry import Wanted
from container_engine.images.free_space import FULL

_MAX_ANSWER, _MAX_FDS = 1 << 16, 2
_TIMEOUT_S = 24 * 3600  # the reader notices silence, and the import as a whole has a limit


class ProxyError(Exception):
    """A failed or missing answer of the proxy. It has no message for users."""


class RefusedError(ProxyError):
    """A blob of which not one byte came, maybe because the registry's token has expired."""


class _Answer(NamedTuple):
    value: object
    pipeid: int
    fds: list[int]


class Proxy:
    """An open image. `source` is its name for skopeo."""

    def __init__(self, source: str, env: Mapping[str, str], answer_s: float) -> None:
        self._source, self._env, self._answer_s = source, env, answer_s
        self._image: object = None

    def __enter__(self) -> Self:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as stack:
            self._socket = stack.enter_context(ours)
            ours.settimeout(self._answer_s)
            argv = ["skopeo", "experimental-image-proxy", "--sockfd", str(theirs.fileno())]
            stack.enter_context(process.running(argv, self._env, _TIMEOUT_S, theirs.fileno()))
            self._ask("Initialize")
            self._image = self._ask("OpenImage", self._source).value
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    @contextlib.contextmanager
    def blob(self, digest: str, size: int) -> Iterator[int]:
        """Yield a descriptor from which to read the blob up to its end.

        Raise RefusedError if there is none, ProxyError if it was incomplete. `FinishPipe` is sent
        first, because only then does the proxy close its end of the pipe.
        """
        try:
            answer = self._ask("GetBlob", self._image, digest, size)
        except ProxyError:
            raise RefusedError from None
        try:
            self._send("FinishPipe", answer.pipeid)
            yield answer.fds[0]
        finally:
            for fd in answer.fds:
                os.close(fd)
        self._receive()

    def _ask(self, method: str, *arguments: object) -> _Answer:
        self._send(method, *arguments)
        return self._receive()

    def _send(self, method: str, *arguments: object) -> None:
        self._socket.send(json.dumps({"method": method, "args": arguments}).encode())

    def _receive(self) -> _Answer:
        text, fds, _flags, _address = socket.recv_fds(self._socket, _MAX_ANSWER, _MAX_FDS)
        try:
            reply = json.loads(text)
            if reply["success"]:
                return _Answer(reply["value"], int(reply.get("pipeid") or 0), fds)
        except (ValueError, KeyError, TypeError):
            pass
        for fd in fds:
            os.close(fd)
        raise ProxyError


_AT_ONCE = 3  # a distant registry is faster over several connections
_PIECE = 1 << 20
_LOOK_S = 0.25


class BrokenOffError(Exception):
    """A failure to stream the layers. It has no message for users."""


class Arrival:
    """A download of blobs into `directory`, in which complete blobs stay.

    `wanted` is in the order in which blobs are needed; drafts are made in `work`. A registry counts
    as gone after `silence_s` seconds without a byte. Nothing here prints; an error in one of its
    threads ends the whole download.
    """

    def __init__(
        self, source: str, env: Mapping[str, str], directory: str, work: str, silence_s: float
    ) -> None:
        self._source, self._env, self._silence_s = source, env, silence_s
        self._directory, self._work = directory, work
        self._waiting: list[Wanted] = []
        self._arrived: dict[str, int] = {}  # bytes received so far
        self._wanted: set[str] = set()
        self._whole: set[str] = set()
        self._changed = threading.Condition()
        self._is_over = False
        self.full: OSError | None = None  # set if a disk or quota had no room for a blob
        self._threads: list[threading.Thread] = []

    def start(self, wanted: Sequence[Wanted]) -> None:
        self._waiting, self._wanted = list(wanted), {one.digest for one in wanted}
        for _number in range(min(_AT_ONCE, len(wanted))):
            thread = threading.Thread(target=self._run, daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def is_whole(self) -> bool:
        """Whether all wanted blobs are complete."""
        return not self._waiting and not self._is_over and self._wanted <= self._whole

    @property
    def size(self) -> int:
        """Return the bytes received so far."""
        with self._changed:
            return sum(self._arrived.values())

    def close(self) -> None:
        """End running downloads and wait for their threads."""
        self._end()
        for thread in self._threads:
            thread.join()

    def layer(self, wanted: Wanted, content: str = "") -> ArrivingLayer:
        """Return a blob as a layer, whose uncompressed content has the digest `content`."""
        return ArrivingLayer(self, wanted, content)

    def wait(self, wanted: Wanted, have: int, is_closed: threading.Event) -> bool:
        """Wait for more than `have` bytes; return whether the blob is complete.

        Raise BrokenOffError.
        """
        with self._changed:
            while True:
                if wanted.digest in self._whole:
                    return True
                if self._is_over or is_closed.is_set():
                    raise BrokenOffError
                if self._arrived.get(wanted.digest, 0) > have:
                    return False
                self._changed.wait(_LOOK_S)

    def path(self, wanted: Wanted) -> str:
        return os.path.join(self._directory, wanted.place)

    def draft(self, wanted: Wanted) -> str:
        return os.path.join(self._work, f"arriving-{wanted.digest.partition(':')[2]}")

    def _run(self) -> None:
        try:
            wanted = self._next()
            while wanted is not None:
                with Proxy(self._source, self._env, self._silence_s) as proxy:
                    wanted = self._fetch_from(wanted, proxy)
        except (ProxyError, BrokenOffError, CeError, OSError):
            self._end()

    def _fetch_from(self, first: Wanted, proxy: Proxy) -> Wanted | None:
        """Fetch blobs through `proxy`; return the one for which another is needed, None at the end.

        skopeo uses a registry's token for a minute at least, and does not ask for another one when
        it is refused: a new process does.
        """
        wanted: Wanted | None = first
        while wanted is not None:
            try:
                self._fetch(proxy, wanted)
            except RefusedError:
                if wanted is first:
                    raise
                return wanted
            wanted = self._next()
        return None

    def _next(self) -> Wanted | None:
        with self._changed:
            return self._waiting.pop(0) if self._waiting and not self._is_over else None

    def _end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _fetch(self, proxy: Proxy, wanted: Wanted) -> None:
        draft = self.draft(wanted)
        try:
            with (
                open(draft, "wb", buffering=0) as file,
                proxy.blob(wanted.digest, wanted.size) as fd,
            ):
                process.widen(fd)
                self._receive(fd, file.fileno(), wanted)
            os.makedirs(os.path.dirname(self.path(wanted)), exist_ok=True)
            os.replace(draft, self.path(wanted))
        except BaseException as error:
            if isinstance(error, OSError) and error.errno in FULL:
                self.full = OSError(error.errno, error.strerror)
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
        with self._changed:
            self._whole.add(wanted.digest)
            self._changed.notify_all()

    def _receive(self, fd: int, file: int, wanted: Wanted) -> None:
        done, last = 0, time.monotonic()
        while True:
            ready, _, _ = select.select([fd], [], [], _LOOK_S)
            if self._is_over or time.monotonic() - last > self._silence_s:
                raise BrokenOffError
            if not ready:
                continue
            size = _move(fd, file)
            if not size:
                return
            done, last = done + size, time.monotonic()
            if done > wanted.size:
                raise BrokenOffError  # `skopeo copy` reports the error
            with self._changed:
                self._arrived[wanted.digest] = done
                self._changed.notify_all()


def _move(source: int, target: int) -> int:
    """Move some bytes from a pipe to a file and return how many.

    Not every file system supports splice(2).
    """
    try:
        return os.splice(source, target, _PIECE)
    except OSError:
        data = os.read(source, _PIECE)
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]
        return len(data)


class ArrivingLayer:
    """A layer that can be read while it arrives."""

    def __init__(self, arrival: Arrival, wanted: Wanted, content: str = "") -> None:
        self._arrival, self._wanted = arrival, wanted
        self.path, self.content = arrival.path(wanted), content

    def open(self) -> _Reading:
        return _Reading(self._arrival, self._wanted)

    def whole(self) -> str:
        self._arrival.wait(self._wanted, self._wanted.size, threading.Event())
        return self.path


class _Reading:
    def __init__(self, arrival: Arrival, wanted: Wanted) -> None:
        self._arrival, self._wanted = arrival, wanted
        self._file: int | None = None
        self._done = 0
        self._closed = threading.Event()

    def read(self, size: int) -> bytes:
        while not self._closed.is_set():
            is_whole = self._arrival.wait(self._wanted, self._done, self._closed)
            data = os.read(self._opened(), size)
            self._done += len(data)
            if data or is_whole:
                return data
        return b""

    def wake(self) -> None:
        self._closed.set()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self) -> int:
        """Return the open file. Raise BrokenOffError.

        Both of its names are tried: since `wait` returned, the blob may have become complete, or
        its download may have failed, which removes the draft.
        """
        for name in (self._arrival.draft, self._arrival.path):
            if self._file is None:
                with contextlib.suppress(FileNotFoundError):
                    self._file = os.open(name(self._wanted), os.O_RDONLY | os.O_CLOEXEC)
        if self._file is None:
            raise BrokenOffError
        return self._file
