"""Start ce-reaper, which outlives this process (spank_plugin/programs/reaper.c)."""

import os

from container_engine.base.errors import LaunchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def start(
    libexec: str,
    what: str,
    fds: "Sequence[int]",
    *paths: str,
    environment: "Mapping[str, str] | None" = None,
) -> None:
    """Start ce-reaper for `what`: services, processes or a store. Raise LaunchError."""
    program = f"{libexec}/ce-reaper"
    opened = [fd for fd in fds if fd >= 0]
    for fd in opened:
        os.set_inheritable(fd, True)
    try:
        pid = os.posix_spawn(program, [program, what, *map(str, fds), *paths], environment or {})
    except OSError as error:
        message = f"cannot start {program}: {error.strerror}"
        raise LaunchError(message, see="program-missing") from None
    finally:
        for fd in opened:
            os.set_inheritable(fd, False)
    # the program exits once its own child process waits
    if os.waitpid(pid, 0)[1] != 0:
        raise LaunchError(f"{program} failed", see="program-failed")
