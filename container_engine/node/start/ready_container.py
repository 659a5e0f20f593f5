"""A container that is ready for its tasks, as a start returns it for the plugin or for `ce run`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from container_engine.node.hooks.repeat import Repeatable


class ReadyContainer:
    """A container for tasks to join. The descriptors belong to the caller.

    `fds` are the user namespace, the mount namespace, the records of the tasks' environment
    (spank_plugin/common/join.h) and a pidfd of the guard, readable when nothing of the session is
    left; `unshared` are other namespaces of the container's own. `go_on` lets the session outlive
    this process; it raises LaunchError if the session has already ended.
    """

    def __init__(
        self, fds: Sequence[int], unshared: Sequence[int], workdir: str, go_on: Callable[[], None]
    ) -> None:
        self.fds, self.unshared, self.workdir, self.go_on = fds, unshared, workdir, go_on
        # lines for the user
        self.warnings: Sequence[str] = ()
        # the entrypoint's output if it is to be shown
        self.printed = ""
        # the socket at which each task asks for a container of its own; -1: all share this one
        self.tasks = -1
        # a descriptor that is readable once the work after the session's end is done; -1: no work
        self.attended = -1
        # if other steps may join: the container's directory, its first process's environment
        self.joinable: tuple[str, bytes] | None = None
        # if the next step may start without Python
        self.started: Started | None = None


class Started:
    """A start that worked, for its memo (start_memo.py).

    `workdir` is the tasks' working directory, `specification` is what the guard was given. `block`
    is the environment of the container's first process, `records` are the changes to the tasks'
    environment. `hooks` returns the conditions under which hooks do the same again, and whether
    they can. `again` decides once more, with the given variables of the step, for a first process
    with the given environment; it returns specification, records and what `hooks` returns, or
    raises LaunchError.
    """

    def __init__(
        self,
        workdir: str,
        specification: bytes,
        again: Callable[[Mapping[str, str], bytes], tuple[bytes, bytes, Repeatable | None]],
        block: bytes,
        records: bytes,
        hooks: Callable[[], Repeatable | None],
    ) -> None:
        self.workdir, self.specification, self.again = workdir, specification, again
        self.block, self.records, self.hooks = block, records, hooks
