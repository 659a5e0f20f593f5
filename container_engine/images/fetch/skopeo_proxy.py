"""skopeo as a proxy (`skopeo experimental-image-proxy`, from skopeo 1.6): blobs as streams.

Requests and answers are JSON texts, one per packet; a blob comes through a pipe whose descriptor
is in the answer. skopeo knows the logins, mirrors and certificates, and it verifies the digests.
In this mode version 1.9 ignores policy.json, so an import must run `skopeo copy` as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self

from container_engine.base import process

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
