"""The node launcher: the program that the plugin starts on each node. Runs as the user.

It imports only the cheap part of the standard library: it runs once per node and step, with
``python -I -S -E``. The plugin passes descriptors and gets one packet as the reply.
"""

from __future__ import annotations

import os
import sys
from _socket import socket

from container_engine.base.errors import EXIT_ENGINE, LaunchError, without_output
from container_engine.node import protocol
from container_engine.node.container import environment as env
from container_engine.node.container.guard import (
    MAX_PACKET,
    GuardDescriptors,
    go_on,
    in_order,
    memory_file,
    read_all,
    rights,
)
from container_engine.node.node_plan import NodePlan, Secrets, read_plan
from container_engine.node.report import trace
from container_engine.node.start.container import Container, checked, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_MAX_NOTICES = 4 * 1024


def main(argv: Sequence[str], libexec: str) -> int:
    """Run with the arguments of enum ce_launcher_arg in spank_plugin/common/protocol.h.

    Return the exit code.
    """
    given = [int(word) for word in argv]
    guard: tuple[int, int, int] | None = None
    failed_steps: tuple[int, int] | None = None
    if len(given) == protocol.CE_ARG_EXPLAINED:
        failed_steps = given[protocol.CE_ARG_LOG], given[protocol.CE_ARG_STATUS]
    elif len(given) > protocol.CE_ARG_COUNT:
        control, pipe = given[protocol.CE_ARG_CONTROL], given[protocol.CE_ARG_PIPE]
        guard = (control, pipe, given[protocol.CE_ARG_PID])
    for fd in (*given[: protocol.CE_ARG_FDS], *(guard or ())[:2]):
        os.set_inheritable(fd, False)
    reply = socket(fileno=given[protocol.CE_ARG_REPLY])
    inputs = given[protocol.CE_ARG_PLAN], given[protocol.CE_ARG_ENVIRONMENT]
    watch, life = given[protocol.CE_ARG_WATCH], given[protocol.CE_ARG_LIFE]
    try:
        descriptors = GuardDescriptors(watch, life, guard)
        _launch(reply, inputs, descriptors, libexec, given[protocol.CE_ARG_BEGUN], failed_steps)
    except LaunchError as failure:
        _answer(reply, f"{protocol.CE_ANSWER_FAILED}{EXIT_ENGINE}\n{failure}")
        return EXIT_ENGINE
    except Exception as error:  # noqa: BLE001  # the plugin must get internal errors too
        from container_engine.node.report import errors

        internal = errors.as_launch_error(error)
        failed = errors.for_plugin(internal, -1, {}, NodePlan().secrets)
        _answer(reply, f"{protocol.CE_ANSWER_FAILED}{EXIT_ENGINE}\n{failed}")
        return EXIT_ENGINE
    return 0


def _launch(
    reply: socket,
    inputs: tuple[int, int],
    descriptors: GuardDescriptors,
    libexec: str,
    begun: int,
    failed: tuple[int, int] | None,
) -> None:
    """Start the container and reply. Raise LaunchError after the trace has been written.

    That is all, if start-up steps have `failed` in ce-guard: they are not run a second time.
    """
    plan_fd, environment_fd = inputs
    text = read_all(plan_fd).decode("utf-8", "surrogateescape")
    node = env.parse_block(read_all(environment_fd))
    if '"var"' in text or "{node." in text:
        from container_engine.node import slurm_step

        node = slurm_step.before_tasks(node)
    plan = NodePlan()
    marks, recorded, target = trace.Marks(begun), -1, ""
    try:
        plan = read_plan(text)
        recorded = trace.open_file(plan.trace_dir, node)
        if plan.save is not None:
            from container_engine.node.start import saving

            target = saving.target(plan.save, plan.save_from, node)
        marks.mark("prepare")
        plan = checked(plan, libexec)
        if failed is not None:
            from container_engine.node.start import startup_steps

            raise startup_steps.failure(plan, node, *failed)
        ready = start(plan, node, descriptors, libexec, marks)
    except Exception as error:  # noqa: BLE001  # internal errors are reported in the same way
        from container_engine.node.report import errors, messages

        failure = errors.as_launch_error(error)
        said = messages.concealed(str(failure), plan.secrets, node)
        trace.write(recorded, plan, node, marks, said)
        raise errors.for_plugin(failure, recorded, node, plan.secrets) from None
    marks.mark("answer")
    marks.warnings = (*plan.notices, *ready.warnings)
    _answer_ready(reply, ready, plan, node, recorded, saves=bool(target))
    try:  # noqa: SIM105  # importing contextlib would cost every start
        go_on(ready.control, ready.end)
    except LaunchError:
        pass  # the plugin has the reply, watches the guard and reports its end
    trace.write(recorded, plan, node, marks, guard=ready.guard)
    _record(ready, text, plan, node, libexec)
    if target:
        from container_engine.node.start import saving

        saving.at_the_end(reply, target, ready.mount_ns, node, libexec)


def _record(
    ready: Container, text: str, plan: NodePlan, node: Mapping[str, str], libexec: str
) -> None:
    """Let the next step with this plan join or start without Python, if that is possible."""
    if ready.joinable is not None:
        from container_engine.node.job_containers import recorded_join

        recorded_join.record(text, plan, node, libexec, *ready.joinable)
    if ready.started is not None:
        from container_engine.node.start import recorded_start

        recorded_start.record(text, plan, node, libexec, ready.started)


def _answer_ready(
    reply: socket,
    ready: Container,
    plan: NodePlan,
    node: Mapping[str, str],
    recorded: int,
    *,
    saves: bool,
) -> None:
    """Send what tasks need to join, in the order of spank_plugin/common/protocol.h."""
    warnings = (*plan.notices, *ready.warnings)
    notices = _notices(warnings, plan.secrets, node, recorded) if warnings else ""
    place = trace.open_directory(recorded)
    # this process has work left after its reply, and the end of the session waits for that
    launcher = os.pidfd_open(os.getpid())
    first = {
        protocol.CE_ANSWER_USER_NS: ready.user_ns,
        protocol.CE_ANSWER_MOUNT_NS: ready.mount_ns,
        protocol.CE_ANSWER_ENVIRONMENT: memory_file("ce-env", ready.records),
        protocol.CE_ANSWER_GUARD: ready.guard,
        protocol.CE_ANSWER_LAUNCHER: launcher,
        protocol.CE_ANSWER_ATTENDED: launcher if ready.attended < 0 else ready.attended,
    }
    others = () if recorded < 0 else (recorded,) if place < 0 else (recorded, place)
    tasks = () if ready.tasks < 0 else (ready.tasks,)
    fds = (*in_order(first), *ready.unshared, *tasks, *others)
    texts = {
        protocol.CE_TEXT_WORKDIR: ready.workdir,
        protocol.CE_TEXT_NOTICES: notices,
        protocol.CE_TEXT_OUTPUT: ready.printed,
        protocol.CE_TEXT_KEPT: "kept" if plan.kept else "",  # other steps may be in the container
        protocol.CE_TEXT_SAVED: "save" if saves else "",
        protocol.CE_TEXT_TASKS: "tasks" if tasks else "",
    }
    kind = f"{protocol.CE_ANSWER_READY}{len(ready.unshared) or ''}"
    _answer(reply, kind + "\0".join(in_order(texts)), fds)


def _notices(
    warnings: Sequence[str], secrets: Secrets, node: Mapping[str, str], recorded: int
) -> str:
    """Return the warnings that no other node of the step has printed, without secrets."""
    from container_engine.node.report import messages

    place = trace.directory_of(recorded)
    unprinted = [
        line for line in warnings if messages.claim_message(place, node, without_output(line))
    ]
    return messages.concealed("\n".join(unprinted), secrets, node)[:_MAX_NOTICES]


def _answer(reply: socket, text: str, fds: Sequence[int] = ()) -> None:
    try:
        reply.sendmsg([text.encode("utf-8", "surrogateescape")[: MAX_PACKET - 1]], rights(fds))
    except (BrokenPipeError, ConnectionError):
        sys.exit(EXIT_ENGINE)  # slurmstepd is gone: no process reads the reply
