"""A command with pipes that a test starts and talks to."""

import os
import signal
import subprocess
import threading
from contextlib import suppress
from types import TracebackType


class Piped(subprocess.Popen[str]):
    """A command with pipes, in a session of its own. If the block fails, the command is killed."""

    def kill_all(self) -> None:
        """Kill its children, too: they hold the pipes open."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

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
