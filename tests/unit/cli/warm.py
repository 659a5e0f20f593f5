"""A process that has imported the command line, and becomes a new `ce` for each command.

Importing takes nine tenths of the time of a short command. Each command has its own arguments,
environment, directory, standard streams and exit code, as if it had been started by itself.

It is also the program itself: `python warm.py DESCRIPTOR`, where DESCRIPTOR is its end of a socket.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import traceback
from typing import IO, TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_STREAMS = 3
_TIMEOUT_S = 60


class Warm:
    """The process, seen from the tests. `python` is the interpreter of the installed `ce`."""

    def __init__(self, python: Path) -> None:
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.settimeout(_TIMEOUT_S)
        self._process = subprocess.Popen(
            [python, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )
        theirs.close()

    def run(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path
    ) -> subprocess.CompletedProcess[str]:
        """Run the `ce` of argv[0], without input."""
        wanted = json.dumps({"argv": argv, "env": dict(env), "cwd": str(cwd)}).encode()
        with (
            tempfile.TemporaryFile() as request,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            open(os.devnull, "rb") as nothing,
        ):
            request.write(wanted)
            request.flush()
            files: tuple[IO[bytes], ...] = (nothing, out, err, request)
            socket.send_fds(self._door, [b"\0"], [file.fileno() for file in files])
            code = int(self._door.recv(16))
            texts = [_read(file).decode() for file in (out, err)]
        return subprocess.CompletedProcess(argv, code, *texts)

    def close(self) -> None:
        self._door.close()
        self._process.wait(_TIMEOUT_S)


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


# ---- the process -------------------------------------------------------------------------------


def _prepare() -> None:
    from container_engine.cli.command_line.verb_table import VERBS

    for verb in VERBS.values():
        importlib.import_module(f"container_engine.cli.verbs.{verb.module}")


def _serve(door: socket.socket) -> None:
    while True:
        message, files, _flags, _address = socket.recv_fds(door, 1, _STREAMS + 1)
        if not message:
            return
        child = os.fork()
        if child == 0:
            door.close()
            _become(json.loads(os.pread(files[-1], os.fstat(files[-1]).st_size, 0)), files)
        for file in files:
            os.close(file)
        _child, status = os.waitpid(child, 0)
        door.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(wanted: dict[str, Any], files: Sequence[int]) -> NoReturn:
    code = 1
    try:
        for number, file in enumerate(files[:_STREAMS]):
            os.dup2(file, number)
        for file in files:
            os.close(file)
        os.chdir(wanted["cwd"])
        os.environ.clear()
        os.environ.update(wanted["env"])
        sys.argv = wanted["argv"]
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
            for number, mode, errors in (
                (0, "r", "surrogateescape"),
                (1, "w", "surrogateescape"),
                (2, "w", "backslashreplace"),
            )
        )
        code = _main()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException:  # noqa: BLE001  # as the interpreter does it
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _main() -> int:
    from container_engine.cli.main import main

    try:
        return main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1


if __name__ == "__main__":
    _prepare()
    _serve(socket.socket(fileno=int(sys.argv[1])))
