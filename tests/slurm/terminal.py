"""A user at a terminal, who types, reads the screen and resizes the window."""

import errno
import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.slurm.cluster import ALICE, Cluster
from tests.slurm.polling import until


class Terminal:
    """A terminal that keeps its output; `wait_for` searches from the end of the last match."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master = master
        self._process = process
        self._screen = ""
        self._seen = 0
        # a descriptor of its own: the number of the other may be another file's once it is closed
        own = (os.dup(master),)
        self._reader = threading.Thread(target=self._read, args=own, daemon=True)
        self._reader.start()

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as master:
            while True:
                try:
                    data = master.read(65536) or b""
                except OSError as error:
                    # The last process that had the terminal open has ended.
                    if error.errno == errno.EIO:
                        return
                    raise
                self._screen += data.decode(errors="replace")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, pattern: str, within_s: float = 20) -> str:
        """Return the text that matches, once it is on the screen."""
        deadline = time.monotonic() + within_s
        while True:
            match = re.compile(pattern).search(self._screen, self._seen)
            if match:
                self._seen = match.end()
                return match[0]
            assert time.monotonic() < deadline, f"no {pattern!r} in {self._screen!r}"
            time.sleep(0.02)

    def resize(self, rows: int, columns: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def wait(self, within_s: float = 30) -> int:
        return until(
            f"the command to end: {self._screen!r}",
            lambda: None if self._process.poll() is None else (self._process.returncode, 0),
            within_s,
        )[0]


@contextmanager
def terminal(
    cluster: Cluster, *argv: str, user: str = ALICE, rows: int = 24, columns: int = 80
) -> Iterator[Terminal]:
    """Run `argv` as `user` at a new terminal; end it with the block at the latest."""
    master, slave = os.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        argv,
        **cluster.login(user, kept={"TERM": "dumb"}),
        cwd=cluster.home(user),
        preexec_fn=lambda: os.login_tty(slave),  # noqa: PLW1509  # it makes three system calls
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        if process.poll() is None:
            cluster.cancel_all(user)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        os.close(master)
