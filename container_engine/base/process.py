"""The only module that runs programs for the submit side."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING

from container_engine.base.errors import CeError, SiteError
from container_engine.base.variables import BROUGHT, without_loader

if TYPE_CHECKING:
    import subprocess

# subprocess.PIPE and DEVNULL, so that a start that runs no program does without the import
_PIPE, _NOTHING = -1, -3
_LOOK_S = 0.25
_PIECE = 1 << 16
_WIDE = 1 << 20


class CommandError(CeError):
    """A failed program. The last line of its stderr is the reason; the details have all of it.

    `stdout` is what it had printed, if `output` ran it.
    """

    stdout = b""

    def __init__(self, argv: Sequence[str], status: int, stderr: str) -> None:
        ended = f"ended by signal {-status}" if status < 0 else f"exit code {status}"
        said = [line.strip() for line in stderr.splitlines() if line.strip()]
        own = f"{argv[0].rpartition('/')[2]}: "  # most programs begin their messages with it
        super().__init__(
            said[-1].removeprefix(own) if said else ended,
            see="program-failed",
            where=argv[0],
            details=f"{_command(argv)}\n{stderr}",
        )
        self.status = status
        self.stderr = stderr
        self.complaint = self.reason.removeprefix("Error: ")  # Podman's word before each error


def find(program: str, path: str | None) -> str | None:
    """Return the path of a program: a bundle's own, else the first in `path`; None without one."""
    own = _brought(program)
    if own != program:
        return own
    import shutil

    return shutil.which(program, path=path)


def _brought(program: str) -> str:
    """Return the path of a program that a bundle brings, else its name."""
    own = f"{sys.prefix}/libexec/container-engine/{BROUGHT}/{program}"
    return own if "/" not in program and os.access(own, os.X_OK) else program


def _command(argv: Sequence[str]) -> str:
    """Return a line with the command, ready to paste.

    It is for an error's details: a hint would be too long.
    """
    return f"the command was: {shlex.join(argv)}"


class TooMuchError(CeError):
    """A program that was killed because it printed more than it may."""


def output(
    argv: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    most: int | None = None,
    confine: Callable[[], None] | None = None,
) -> bytes:
    """Run a program without stdin and return its stdout; kill it after `timeout_s` seconds.

    `confine` is called in the child before it becomes the program. Raise CommandError if the
    program fails, SiteError if it cannot be started or is too slow, and TooMuchError if it prints
    more than `most` bytes.
    """
    said = b""
    try:
        with _child(argv, env, timeout_s, _NOTHING, _PIPE, confine=confine) as child:
            assert child.stdout is not None
            said = child.stdout.read(-1 if most is None else most + 1)
            if most is not None and len(said) > most:
                raise TooMuchError(f"more than {most} bytes", see="program-failed", where=argv[0])
    except CommandError as error:
        error.stdout = said
        raise
    return said


def _not_started(argv: Sequence[str], error: OSError) -> SiteError:
    from container_engine.base import shortage

    message = _no_start(argv, error)
    if hint := shortage.hint(error.errno or 0):
        return SiteError(message, hint, shortage.CODE)
    if isinstance(error, FileNotFoundError):
        hint = f"install {argv[0]}, or ask the administrator to; ce doctor lists what is missing"
    return SiteError(message, hint or None, "program-missing")


def _file_in_memory(argv: Sequence[str]) -> IO[bytes]:
    """Return an unnamed file for a program's stderr. Raise SiteError."""
    try:
        return open(os.memfd_create("stderr"), "rb")
    except OSError as error:
        # Most likely no descriptor is left: then `shortage` cannot be imported for the hint.
        hint = "raise your limit of open files in the shell or script: ulimit -n 1024"
        raise SiteError(_no_start(argv, error), hint, "limit-reached") from None


def _no_start(argv: Sequence[str], error: OSError) -> str:
    return f"cannot start {argv[0]}: {reason(error)}"


def reason(error: OSError | ValueError) -> str:
    """Return the kernel's reason, or Python's for a path with a NUL, beginning in lower case."""
    text = getattr(error, "strerror", None) or str(error)
    return text[:1].lower() + text[1:]


def watched(
    argv: Sequence[str], env: Mapping[str, str], timeout_s: float, look: Callable[[], None]
) -> None:
    """Run a program and call `look` a few times a second; an exception from it kills the program.

    Raise the same errors as `output`.
    """
    with _child(argv, env, timeout_s, stdin=_NOTHING, stdout=_NOTHING) as child:
        _wait_looking(child, look)
        look()


def measured(
    argv: Sequence[str], env: Mapping[str, str], timeout_s: float, on_read: Callable[[int], None]
) -> None:
    """Run a program and pass `on_read` a few times a second the number of bytes read so far.

    Raise the same errors as `output`.
    """
    with _child(argv, env, timeout_s, stdin=_NOTHING, stdout=_NOTHING) as child:
        _wait_looking(child, lambda: on_read(_bytes_read(child.pid)))


def _wait_looking(child: subprocess.Popen[bytes], look: Callable[[], None]) -> None:
    import subprocess

    while True:
        try:
            child.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            look()
        else:
            return


def _bytes_read(pid: int) -> int:
    """Return the bytes that a process has read; 0 if it has ended or the kernel does not count."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            return int(file.readline().split()[1])  # rchar, which includes the page cache
    except (OSError, IndexError, ValueError):
        return 0


def merged(
    argv: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    heard: Callable[[bytes], None],
    *,
    is_shown: bool,
    is_enough: Callable[[], bool] = lambda: False,
) -> None:
    """Run a program and pass `heard` pieces of its output, stdout and stderr in one stream.

    With `is_shown` all of it also goes to stderr at once, and the program has a terminal if this
    process has one there: Podman shows progress on terminals only. The program is killed when
    `is_enough`, which is asked a few times a second. Raise the same errors as `output`; their
    details have the end of the output.
    """
    reader, writer = _terminal() if is_shown and os.isatty(2) else os.pipe()
    last = b""
    with open(reader, "rb", 0) as stream, open(writer, "wb", 0) as end:
        try:
            with _child(
                argv, env, timeout_s, stdin=_NOTHING, stdout=writer, stderr=writer
            ) as child:
                end.close()
                while piece := _next_piece(stream, is_enough):
                    if is_shown:
                        with contextlib.suppress(OSError):  # a closed terminal must not end it
                            os.write(2, piece)
                    heard(piece)
                    last = (last + piece)[-_PIECE:]
                if is_enough():
                    child.kill()
        except CommandError as error:
            text = last.decode(errors="replace").replace("\r\n", "\n")
            raise CommandError(argv, error.status, text) from None


def _terminal() -> tuple[int, int]:
    """Return both ends of a new terminal that changes no bytes and is as wide as stderr's."""
    import termios
    import tty

    reader, writer = os.openpty()
    tty.setraw(writer)
    with contextlib.suppress(termios.error):
        termios.tcsetwinsize(writer, termios.tcgetwinsize(2))
    return reader, writer


def _next_piece(stream: IO[bytes], is_enough: Callable[[], bool]) -> bytes:
    import select

    while not select.select([stream], [], [], _LOOK_S)[0]:
        if is_enough():
            return b""
    try:
        return stream.read(_PIECE)
    except OSError:  # EIO, the end of a terminal's output
        return b""


def attended(argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> None:
    """Run a program that talks to the user: stdin and stdout are this process's.

    Raise the same errors as `output`.
    """
    with _child(argv, env, timeout_s, stdin=0, stdout=1):
        pass


def into_file(argv: Sequence[str], env: Mapping[str, str], timeout_s: float, path: str) -> None:
    """Run a program with stdout and stderr in the file `path`. Raise the errors of `output`."""
    with open(path, "wb") as file:
        number = file.fileno()
        with _child(argv, env, timeout_s, stdin=_NOTHING, stdout=number, stderr=number):
            pass


def feed(
    argv: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    write: Callable[[IO[bytes]], None],
) -> None:
    """Run a program that reads on stdin what `write` writes.

    It has ended when this returns or raises. Raise the errors of `output` and of `write`.
    """
    with _child(argv, env, timeout_s, stdin=_PIPE, stdout=_NOTHING) as child:
        assert child.stdin is not None
        # if it ends before it has read everything, its exit code says why
        with contextlib.suppress(BrokenPipeError), child.stdin as stdin:
            write(stdin)


@contextlib.contextmanager
def reading(
    argv: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    source: IO[bytes] | int,
    confine: Callable[[], None] | None = None,
) -> Iterator[IO[bytes]]:
    """Yield what a program makes of `source`, as a stream that must be read to its end.

    `confine` is as for `output`. Raise the errors of `output` after the body. Kill the program if
    the body raises.
    """
    with _child(argv, env, timeout_s, source, _PIPE, confine=confine) as child:
        assert child.stdout is not None
        yield child.stdout


@contextlib.contextmanager
def running(
    argv: Sequence[str], env: Mapping[str, str], timeout_s: float, fd: int
) -> Iterator[None]:
    """Run a program that inherits the descriptor `fd`, and kill it when the body ends.

    A failure of the program is ignored. Raise SiteError if it cannot be started or is too slow.
    """
    with (
        contextlib.suppress(CommandError),
        _child(argv, env, timeout_s, _NOTHING, _NOTHING, inherited=(fd,)) as child,
    ):
        yield
        child.kill()


def widen(pipe: int) -> None:
    """Enlarge a pipe's buffer for speed. Errors are ignored: users have a limit for it."""
    import fcntl

    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _WIDE)


@contextlib.contextmanager
def _child(  # noqa: PLR0913  # all that a program starts with
    argv: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    stdin: IO[bytes] | int,
    stdout: int,
    *,
    stderr: int | None = None,
    inherited: Sequence[int] = (),
    confine: Callable[[], None] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a running program, killed after `timeout_s` seconds or if the body raises.

    It gets `env` without the variables that choose code to load; `confine` is called in the new
    process before it. Raise SiteError if it cannot be started; after the body, also if it was too
    slow, and CommandError if it failed.
    """
    import subprocess
    import threading

    too_late = False

    def give_up() -> None:
        nonlocal too_late
        too_late = True
        child.kill()

    with _file_in_memory(argv) as said:
        try:
            child = subprocess.Popen(
                [_brought(argv[0]), *argv[1:]],
                env=without_loader(env),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr or said,
                pass_fds=inherited,
                preexec_fn=confine,  # noqa: PLW1509  # makes system calls only
            )
        except OSError as error:
            raise _not_started(argv, error) from None
        limit = threading.Timer(timeout_s, give_up)
        limit.start()
        try:
            yield child
            child.wait()
        finally:
            limit.cancel()
            child.kill()
            if child.stdout is not None:
                child.stdout.close()
            child.wait()
        said.seek(0)
        text = said.read().decode(errors="replace")
        if too_late:
            raise SiteError(
                f"not finished after {timeout_s:g} s",
                see="program-slow",
                details=f"{_command(argv)}\n{text}",
                where=argv[0],
            )
        if child.returncode:
            raise CommandError(argv, child.returncode, text)
