"""A running container, as its start hands it to the plugin or to `ce run`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from container_engine.node.hooks.repeat import Repeatable


class Session:
    """A running container. The descriptors belong to the caller.

    `fds` are the user namespace, the mount namespace, the records of the tasks' environment
    (spank_plugin/common/join.h) and a pidfd of the guard, readable when nothing of the session is
    left; `unshared` are other namespaces of the container's own. Unless `go_on` is called, the
    session ends with this process; it raises LaunchError if the session has already ended.
    """

    def __init__(
        self, fds: Sequence[int], unshared: Sequence[int], workdir: str, go_on: Callable[[], None]
    ) -> None:
        self.fds, self.unshared, self.workdir, self.go_on = fds, unshared, workdir, go_on
        # for the user
        self.warnings: Sequence[str] = ()
        # the entrypoint's output if it is to be shown
        self.printed = ""
        # where each task asks for a container of its own, -1 if all share this one
        self.tasks = -1
        # readable once the work after the session's end is done, -1 if there is none
        self.attended = -1
        # the directory of a container that other steps may join, its first process's environment
        self.joinable: tuple[str, bytes] | None = None
        # of a start that the next step may do again without Python: start_memo.Started
        self.started: tuple[bytes, Callable[[], bytes], bytes, bytes, Repeatable | None] | None = (
            None
        )
