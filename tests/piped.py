"""A command with pipes that a test starts and talks to."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType


def end_session(leader: int) -> None:
    """Kill all processes of a session: what salloc starts has a process group of its own."""
    for name in os.listdir("/proc"):
        with suppress(ProcessLookupError):
            if name.isdigit() and os.getsid(int(name)) == leader:
                os.kill(int(name), signal.SIGKILL)


class Piped(subprocess.Popen[str]):
    """A command with pipes, in a session of its own. If the block fails, the command is killed."""

    def kill_all(self) -> None:
        """Kill its children, too: they hold the pipes open."""
        end_session(self.pid)

    def finish(
        self, given: str, timeout: float, hung: Callable[[], str]
    ) -> subprocess.CompletedProcess[str]:
        """Return how it ended, with `given` as its input.

        If it hangs, kill it and fail the test with what `hung` has returned before.
        """
        try:
            out, err = self.communicate(given, timeout)
        except subprocess.TimeoutExpired:
            seen = hung()
            self.kill_all()
            out, err = self.communicate(timeout=20)
            raise AssertionError(
                f"{self.args!r} hung for {timeout} s: {out}{err}\n{seen}"
            ) from None
        return subprocess.CompletedProcess(self.args, self.returncode, out, err)

    def line(self, within_s: float = 60) -> str:
        """Return the next line of output; fail the test if there is none in time."""
        assert self.stdout is not None
        alarm = threading.Timer(within_s, self.kill_all)
        alarm.start()
        found = self.stdout.readline()
        alarm.cancel()
        if not found:
            raise AssertionError(f"{self.args!r}: no line: {self.communicate(timeout=20)}")
        return found

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill_all()
        super().__exit__(kind, value, traceback)
