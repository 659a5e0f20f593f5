"""HTTP server between a registry and its clients that fails as real servers do."""

import contextlib
import http.client
import re
import socket
import struct
import threading
from collections.abc import Iterator
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
    """The server's address and faults; `asked` are its requests in order."""

    address: str
    faults: list[Fault]
    asked: list[str]
    over: threading.Event
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
        fault = self.front.fault(self.path) or Fault("", after=None)
        if fault.status:
            self.send_response(fault.status)
            for name, value in {**fault.headers, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()
            return
        with contextlib.closing(http.client.HTTPConnection(self.behind)) as connection:
            self._ask(connection, fault)

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

    def _reset(self) -> None:
        """Reset the connection."""
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
        self.connection.close()
