"""HTTP server between a registry and its clients that fails as real servers do."""

import contextlib
import http.client
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLOBS, MANIFESTS, ALL = r"^/v2/.*/blobs/", r"^/v2/.*/manifests/", r"^/v2/"
_PIECE = 1 << 16


@dataclass
class Fault:
    """A fault for GET requests that match `where`, `times` times; -1 is forever.

    `status` is sent as the answer. `after` passes that many bytes on, and then resets the
    connection, stalls or changes a byte. `instead` is the path whose answer is sent.
    """

    where: str
    times: int = -1
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    after: int | None = None
    stalls: bool = False
    changes: bool = False
    instead: str = ""


@dataclass
class Front:
    """The server's address and faults; `asked` are its requests in order.

    With `token_s` every request needs a token of its token service, which lives so many seconds.
    `pace` limits each answer to so many bytes a second.
    """

    address: str
    faults: list[Fault]
    asked: list[str]
    over: threading.Event
    token_s: float = 0
    pace: int = 0
    counting: threading.Lock = field(default_factory=threading.Lock)  # requests are concurrent

    def fault(self, path: str) -> Fault | None:
        with self.counting:
            for fault in self.faults:
                if fault.times and re.search(fault.where, path):
                    fault.times -= 1
                    return fault
        return None


@contextlib.contextmanager
def front(backend: str) -> Iterator[Front]:
    """Run a server in front of `backend` (HOST:PORT); the caller appends faults to its list."""
    over = threading.Event()

    class Handler(_Handler):
        behind = backend

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    known = Front(f"127.0.0.1:{server.server_port}", [], [], over)
    Handler.front = known
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield known
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    behind: str
    front: Front

    def log_message(self, *_args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.front.asked.append(self.path)
        if self.front.token_s and not self._has_token():
            return
        fault = self.front.fault(self.path) or Fault("", after=None)
        if fault.status:
            self._answer(fault.status, fault.headers, b"")
            return
        with contextlib.closing(http.client.HTTPConnection(self.behind)) as connection:
            self._ask(connection, fault)

    def _has_token(self) -> bool:
        """Return whether the request has a token that lives; answer it otherwise."""
        now = time.monotonic()
        if self.path.startswith("/token"):
            self._answer(200, {}, json.dumps({"token": str(now), "expires_in": 1}).encode())
            return False
        _, _, token = self.headers.get("Authorization", "").partition("Bearer ")
        if token and now - float(token) < self.front.token_s:
            return True
        realm = f'Bearer realm="http://{self.front.address}/token",service="test"'
        self._answer(401, {"WWW-Authenticate": realm}, b'{"errors":[{"code":"UNAUTHORIZED"}]}')
        return False

    def _answer(self, status: int, headers: Mapping[str, str], text: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text if self.command == "GET" else b"")

    def _ask(self, connection: http.client.HTTPConnection, fault: Fault) -> None:
        path = fault.instead or self.path
        connection.putrequest(self.command, path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():  # a name may occur several times
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self._pass_on(answer, fault)

    def _pass_on(self, answer: http.client.HTTPResponse, fault: Fault) -> None:
        if fault.after is not None:
            self.wfile.write(answer.read(fault.after))
            if fault.stalls:
                self.front.over.wait(60)
            elif fault.changes:
                self.wfile.write(bytes(byte ^ 1 for byte in answer.read(1)))
            if not fault.changes:
                self._reset()
                return
        while piece := answer.read(_PIECE):
            self.wfile.write(piece)
            if self.front.pace:
                time.sleep(len(piece) / self.front.pace)

    def _reset(self) -> None:
        """Reset the connection."""
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
        self.connection.close()
