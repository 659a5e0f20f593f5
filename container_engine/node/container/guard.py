"""Start ce-guard, which makes containers and holds their sessions, and receive its reports."""

from __future__ import annotations

import os
import sys
from _signal import SIGPIPE, SIGXFSZ  # type: ignore[import-not-found]
from _socket import (
    AF_UNIX,
    CMSG_SPACE,
    MSG_CTRUNC,
    SCM_RIGHTS,
    SOCK_SEQPACKET,
    SOL_SOCKET,
    socket,
    socketpair,
)

from container_engine.base.errors import LaunchError
from container_engine.node import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    from container_engine.node.node_plan import NodePlan

    T = TypeVar("T")

MAX_PACKET = 64 * 1024
_FD_SIZE = 4
_MAX_FDS = protocol.CE_REPORTED_UNSHARED + protocol.CE_MAX_UNSHARED + 1  # the tasks' socket
# Python ignores these for itself; ignored signals survive execve, which no program expects
PYTHONS_SIGNALS = (SIGPIPE, SIGXFSZ)


class GuardDescriptors:
    """Descriptors for a guard. `process` is the pidfd of the process with which the session ends.

    `life` is a socket to the plugin, or -1. `begun` is a guard that has been started before and
    waits for its specification: the socket to it, the pipe for the specification, and the ID of the
    guard's parent (spank_plugin/guard/main.c). `outcome` is the file of `ce run` for what becomes
    of the container, or -1.
    """

    def __init__(
        self,
        process: int,
        life: int = -1,
        begun: tuple[int, int, int] | None = None,
        outcome: int = -1,
    ) -> None:
        self.process, self.life, self.begun, self.outcome = process, life, begun, outcome


def start_guard(
    libexec: str,
    descriptors: GuardDescriptors,
    specification: bytes,
    user_ns: int = -1,
    more: Sequence[int] = (),
) -> socket:
    """Start a guard that executes the specification; return the socket to it.

    The guard enters the user namespace `user_ns` unless it is -1. `more` are descriptors that the
    specification names. Both are closed here, the guard has its own. Raise LaunchError.
    """
    if descriptors.begun is not None and user_ns < 0 and not more:
        return _specify(descriptors, *descriptors.begun, specification)
    ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
    spec = memory_file("ce-specification", specification)
    places = {
        protocol.CE_GUARD_CONTROL: theirs.fileno(),
        protocol.CE_GUARD_WATCH: descriptors.process,
        protocol.CE_GUARD_LIFE: descriptors.life,
        protocol.CE_GUARD_SPECIFICATION: spec,
    }
    if user_ns >= 0:
        places[protocol.CE_GUARD_USER_NS] = user_ns
    passed = in_order(places)
    for fd in (*passed, *more, descriptors.outcome):
        if fd >= 0:
            os.set_inheritable(fd, True)
    program = f"{libexec}/ce-guard"
    try:
        pid = os.posix_spawn(
            program,
            [program, *map(str, passed)],
            {},
            # slurmstepd waits until no process holds the ends of its pipes: the guard gets none
            file_actions=[(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in range(3)],
            setsigdef=PYTHONS_SIGNALS,
        )
    except OSError as error:
        from container_engine.base import shortage

        message = f"cannot start {program}: {error.strerror}"
        hint = shortage.hint(error.errno or 0)
        raise LaunchError(message, hint, shortage.CODE if hint else "program-missing") from None
    finally:
        theirs.close()
        os.close(spec)
        for fd in (descriptors.process, descriptors.outcome):
            if fd >= 0:
                os.set_inheritable(fd, False)
        # only the guard may hold `life`: the plugin must notice the guard's end at once
        for fd in (descriptors.life, user_ns, *more):
            if fd >= 0:
                os.close(fd)
    os.waitpid(pid, 0)  # this process exits as soon as it has made process 1 of the session
    return ours


def _specify(
    descriptors: GuardDescriptors, control: int, pipe: int, pid: int, specification: bytes
) -> socket:
    """Send the specification to the guard that waits for it; return the socket to it."""
    view = memoryview(specification)
    try:
        while view:
            view = view[os.write(pipe, view) :]
    except BrokenPipeError:
        pass  # the guard has ended, and its report says why
    os.close(pipe)
    # only the guard may hold it, as in start_guard
    os.close(descriptors.life)
    os.waitpid(pid, 0)
    return socket(fileno=control)


def await_report(
    control: socket,
    plan: NodePlan,
    on_note: Callable[[str], None] | None = None,
    general: Callable[[str], LaunchError] | None = None,
) -> tuple[tuple[str, str], Sequence[int]]:
    """Return the guard's times, its children's output, and the descriptors of a ready container.

    `on_note` gets notes that come before the report, such as those of hooks. Raise LaunchError
    after the plan's time limit, if the guard has ended, or if it reports a failure, which `general`
    turns into the error unless that is about the plan's own programs and directories.
    """
    control.settimeout(plan.start_timeout_s)
    try:
        data, fds = receive(control)
    except TimeoutError:
        message = f"the container did not start within {plan.start_timeout_s:g} s"
        raise LaunchError(message, see="start-timeout") from None
    kind = data[:1].decode("latin-1")
    if kind == protocol.CE_REPORT_NOTE and on_note is not None:
        on_note(data[1:].decode("utf-8", "surrogateescape"))
        return await_report(control, plan, on_note, general)
    if kind in (protocol.CE_REPORT_OF_NODE, protocol.CE_REPORT_OF_TASKS):
        moments, _nul, printed = data[1:].decode("utf-8", "surrogateescape").partition("\0")
        return (moments, printed), fds
    if not data:
        raise _ended()
    report = data[1:].decode("utf-8", "replace")
    from container_engine.node.report import guard_failure

    raise guard_failure.of_plan(report, plan) or (general or guard_failure.explain)(report)


def go_on(control: socket, end: socket | None = None) -> None:
    """Let the session outlive this process. The guard closes `end` when the session ends.

    Raise LaunchError if the guard has ended.
    """
    fds = [] if end is None else [end.fileno()]
    try:
        control.sendmsg([protocol.CE_GO_ON.encode()], rights(fds))
    except ConnectionError:
        raise _ended() from None
    finally:
        control.close()


def _ended() -> LaunchError:
    message = "the process that guards the container ended while it started"
    return LaunchError(message, see="launcher-ended")


def rights(fds: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """Return the ancillary data with which sendmsg sends descriptors."""
    data = b"".join(fd.to_bytes(_FD_SIZE, sys.byteorder) for fd in fds)
    return [(SOL_SOCKET, SCM_RIGHTS, data)] if fds else []


def receive(connection: socket) -> tuple[bytes, list[int]]:
    """Receive a packet and its descriptors, and keep programs from inheriting these.

    Raise LaunchError if there are too many: a container that is entered without one of them would
    be a different one.
    """
    data, ancillary, flags, _address = connection.recvmsg(
        MAX_PACKET, CMSG_SPACE(_MAX_FDS * _FD_SIZE)
    )
    fds = []
    for level, kind, numbers in ancillary:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            fds += [
                int.from_bytes(numbers[i : i + _FD_SIZE], sys.byteorder)
                for i in range(0, len(numbers), _FD_SIZE)
            ]
    for fd in fds:
        os.set_inheritable(fd, False)
    if flags & MSG_CTRUNC:
        raise LaunchError("the guard's report is not complete", see="internal-error")
    return data, fds


def entering(
    libexec: str, namespaces: Sequence[int], mount_ns: int, records: int, workdir: str
) -> list[str]:
    """Return the words before a command that run it in a container, and let it inherit these.

    `namespaces` are the container's user namespace, which comes first, and its other namespaces
    except the mount namespace. `records` change the environment (spank_plugin/common/join.h).
    """
    for fd in (*namespaces, mount_ns, records):
        os.set_inheritable(fd, True)
    words = {
        protocol.CE_ENTER_NAMESPACES: ",".join(map(str, namespaces)),
        protocol.CE_ENTER_MOUNT_NS: str(mount_ns),
        protocol.CE_ENTER_ENVIRONMENT: str(records),
        protocol.CE_ENTER_WORKDIR: workdir,
    }
    return [f"{libexec}/ce-enter", *in_order(words)]


def in_order(values: Mapping[int, T]) -> list[T]:
    """Return the values of the places from 0 on (protocol.py)."""
    return [values[place] for place in range(len(values))]


def memory_file(name: str, content: bytes) -> int:
    fd = os.memfd_create(name)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def read_all(fd: int) -> bytes:
    with open(fd, "rb", closefd=False) as file:
        return file.read()
