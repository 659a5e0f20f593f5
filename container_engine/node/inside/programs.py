"""Run programs in a container from outside; they join it as tasks do."""

from __future__ import annotations

import fcntl
import os
import select
import signal

from container_engine.base.errors import EXIT_ENGINE, CeError, LaunchError, with_output
from container_engine.node.container.guard import PYTHONS_SIGNALS, entering

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

_KEPT_OUTPUT, _KEPT_LINES = 2000, 6
# signals that are meant for the tasks, and those that Python ignores for itself
DEFAULTS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


def become(words: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by a command that `entering` begins. Raise CeError."""
    for number in PYTHONS_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(words[0], words, environment)
    except OSError as error:
        from container_engine.base.process import reason

        message = f"cannot start {words[0]}: {reason(error)}"
        raise CeError(message, see="program-missing") from None


class Place:
    """The container in which services run, and the environment of its tasks.

    The descriptors belong to the caller. `entered` are the container's user namespace and its other
    own namespaces, except the mount namespace. If the container `is_kept`, other steps of the job
    may be in it.
    """

    def __init__(  # noqa: PLR0913  # one for each field
        self,
        entered: Sequence[int],
        mount_ns: int,
        guard: int,
        *,
        workdir: str,
        environment: Mapping[str, str],
        libexec: str,
        timeout_s: float,
        is_kept: bool = False,
    ) -> None:
        self.is_kept = is_kept
        self.entered, self.mount_ns, self.guard = entered, mount_ns, guard
        self.workdir = workdir
        self.environment = environment
        self.libexec = libexec
        self.timeout_s = timeout_s
        # no changes: a program gets its whole environment when it is started
        self._records = os.memfd_create("ce-env")

    def inside(self, words: Sequence[str], workdir: str | None = None) -> list[str]:
        """Return the command line that runs `words` in the container, in its or another workdir."""
        place = self.workdir if workdir is None else workdir
        first = entering(self.libexec, self.entered, self.mount_ns, self._records, place)
        return [*first, *words]

    def close(self) -> None:
        for fd in (*self.entered, self.mount_ns):
            os.set_inheritable(fd, False)
        os.close(self._records)


class Process:
    """A program started in the container; its parent is a process that only waits for it.

    After `let_go` it belongs to the node's process 1, as a daemon does.
    """

    def __init__(
        self,
        place: Place,
        words: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        workdir: str | None = None,
        stdin: int | None = None,
    ) -> None:
        self._log = os.memfd_create("ce-service-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        argv = place.inside(words, workdir)
        self._pipe, writer = os.pipe()
        self._waiter = os.fork()
        if self._waiter == 0:
            given = place.environment if environment is None else environment
            self._wait_for(writer, argv, given, stdin)
        os.close(writer)
        self.pid = int(os.read(self._pipe, 16) or b"0")
        self._waiter_fd = os.pidfd_open(self._waiter)

    def _wait_for(
        self, report: int, argv: Sequence[str], environment: Mapping[str, str], stdin: int | None
    ) -> None:
        """Run the program and wait for it, in the waiting process; exit with the program's code."""
        code = EXIT_ENGINE
        try:
            os.setsid()
            pid = self._spawn(argv, environment, stdin)
            os.write(report, str(pid).encode())
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        finally:
            # negative: a signal, reported as a shell does
            os._exit(code if code >= 0 else 128 - code)

    def _spawn(self, argv: Sequence[str], environment: Mapping[str, str], stdin: int | None) -> int:
        first = (
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
            if stdin is None
            else (os.POSIX_SPAWN_DUP2, stdin, 0)
        )
        actions = [
            first,
            (os.POSIX_SPAWN_DUP2, self._log, 1),
            (os.POSIX_SPAWN_DUP2, self._log, 2),
        ]
        return os.posix_spawn(
            argv[0],
            list(argv),
            dict(environment),
            file_actions=actions,
            setsid=True,
            setsigdef=DEFAULTS,
        )

    def program(self) -> int:
        """Return the ID of the program's process.

        If the container has its own PID namespace, it is a child of ce-enter, which stays outside
        (spank_plugin/common/join.h).
        """
        try:
            with open(f"/proc/{self.pid}/comm", encoding="ascii") as file:
                stands_for_it = file.read() == "ce-enter\n"
            with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as file:
                children = file.read().split()
        except OSError:
            return self.pid  # it has ended
        return int(children[0]) if stands_for_it and children else self.pid

    def exit_code(self, timeout_s: float) -> int | None:
        """Return the exit code, or None if the program still runs after `timeout_s`."""
        if self._waiter and not is_readable(self._waiter_fd, timeout_s):
            return None
        if self._waiter:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._waiter, 0)[1])
            self._waiter = 0
        return self._code

    def let_go(self) -> None:
        if self._waiter:
            os.kill(self._waiter, signal.SIGKILL)
            os.waitpid(self._waiter, 0)
            self._waiter = 0
        for fd in (self._pipe, self._waiter_fd, self._log):
            os.close(fd)

    def kill(self) -> None:
        """Kill the program, unless it has ended meanwhile."""
        try:
            if self._waiter and self.pid:
                os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # the waiting process has waited for it, which `exit_code` does not know yet

    def refuse_output(self) -> None:
        """Let the program's writes to its output fail from now on: nobody would read them.

        They are kept in memory, which would grow, for example with each client of a server.
        """
        fcntl.fcntl(self._log, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)

    def output(self) -> str:
        """Return the end of the program's output, on one line."""
        os.lseek(self._log, 0, os.SEEK_SET)
        text = os.read(self._log, 1 << 20).decode("utf-8", "replace").strip()
        lines = text[-_KEPT_OUTPUT:].splitlines()[-_KEPT_LINES:]
        return " / ".join(line.strip() for line in lines)


def run(place: Place, what: str, words: Sequence[str], stdin: int | None = None) -> str:
    """Run a short command in the container at `/`; return its output. Raise LaunchError with it."""
    process = Process(place, words, workdir="/", stdin=stdin)
    code = process.exit_code(place.timeout_s)
    printed = process.output()
    process.kill()
    process.let_go()
    if code != 0:
        raise failure(what, code, printed, place.timeout_s)
    return printed


def failure(what: str, code: int | None, printed: str, timeout_s: float) -> LaunchError:
    how = f"not ready within {timeout_s:g} s" if code is None else f"exit code {code}"
    message = with_output(f"{what} did not start: {how}", printed)
    return LaunchError(message, see="hook-service", details=printed)


def is_readable(fd: int, timeout_s: float) -> bool:
    """Wait until the descriptor is readable; return False if that takes longer than `timeout_s`."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
