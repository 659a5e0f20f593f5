"""Launch without Slurm: a command for `ce run`, and the hooks alone to see what they would do."""

from __future__ import annotations

import os
import sys
from socket import AF_UNIX, SOCK_SEQPACKET, socketpair
from typing import NoReturn

from container_engine.base import reaper
from container_engine.base.errors import LaunchError, UserError
from container_engine.node import protocol
from container_engine.node.container import environment as env
from container_engine.node.container.checks import limits, parts_of
from container_engine.node.container.description import Paths, person_of_process
from container_engine.node.container.guard import (
    MAX_PACKET,
    GuardDescriptors,
    entering,
    go_on,
    memory_file,
    start_guard,
)
from container_engine.node.container.specification import encode, operations
from container_engine.node.inside import programs
from container_engine.node.plan_json import to_json
from container_engine.node.report.guard_failure import explain
from container_engine.node.start.container import checked, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from container_engine.node.hooks.run import HooksOnNode
    from container_engine.node.node_plan import NodePlan


# must match spank_plugin/common/outcome.h
_OUTCOME = "CE_OUTCOME"


def run_in_container(
    plan: NodePlan,
    argv: Sequence[str],
    libexec: str,
    started: Callable[[], None] = lambda: None,
    json_file: int = -1,
) -> NoReturn:
    """Start the container and become the command in it, with its terminal, signals and exit code.

    Call `started` when the image is mounted and everything is set up. At the end the command's
    outcome is written to the descriptor `json_file`, unless that is -1. The session ends with this
    process, and processes that the command has left running are then killed. Raise UserError for a
    plan that needs a job, LaunchError if the container cannot be started, CeError if a program of
    the engine cannot be; the command has not run then.
    """
    if plan.container_name:
        hint = "srun joins it or starts it; ce exec goes to one that runs"
        raise UserError("ce run cannot name its container: only those of a job have names", hint)
    if plan.save is not None:
        hint = "use srun, or make an image with ce build"
        raise UserError("ce run cannot save its container", hint, where="--container-save")
    # one command, one container
    plan = checked(plan.but(kept=None, for_each=False), libexec)
    this = os.pidfd_open(os.getpid())
    environment = {name: value for name, value in os.environ.items() if name != _OUTCOME}
    outcome = -1
    if json_file >= 0 or limits(plan) is not None:
        outcome = memory_file("ce-outcome", b"")
    ready = start(plan, os.environ, GuardDescriptors(this, outcome=outcome), libexec)
    end = ready.end
    if end is None:
        end, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
        reaper.start(libexec, "processes", (this, ready.guard, ready.mount_ns, theirs.fileno()))
        theirs.close()
    go_on(ready.control, end)
    started()
    for line in (*plan.notices, *ready.warnings):
        sys.stderr.write(f"ce: warning: {line}\n")
    sys.stderr.flush()
    sys.stdout.write(ready.printed)
    sys.stdout.flush()
    entered = (ready.user_ns, *ready.unshared)
    records = memory_file("ce-env", ready.records)
    words = entering(libexec, entered, ready.mount_ns, records, ready.workdir)
    # os.environ also has the variables that ce-start hides from Python, such as LD_PRELOAD
    if outcome >= 0:
        environment[_OUTCOME] = f"{outcome} {json_file} {ready.guard}"
        for fd in (outcome, json_file, ready.guard):
            if fd >= 0:
                os.set_inheritable(fd, True)
    programs.become([*words, *argv], environment)


_END = "end"


def find(plan: NodePlan, node: Mapping[str, str], libexec: str) -> HooksOnNode:
    """Return the hooks, with their decisions on libraries and their warnings. Raise LaunchError.

    The image is mounted in a session that ends with this call.
    """
    from container_engine.node.hooks.run import HooksOnNode

    paths = Paths(session=f"{libexec}/session", libexec=libexec)
    # no task will begin anywhere
    unmet: list[LaunchError] = []
    here, parts = parts_of(plan.but(workdir="/"), node, unmet)
    alone = plan.but(for_each=False)
    hooks = HooksOnNode(alone, here, parts, node, paths, unmet, explain=True)
    person = person_of_process()
    places = env.directories(plan, hooks.settings, node, person.home)
    steps = operations(
        paths,
        plan.image_paths,
        hooks.parts.but(directories=places),
        env.for_container(plan.image_env, hooks.settings),
        person,
        hooks.operations(),
    )
    without_container = steps[:-2]
    steps = [*without_container, ("note", [to_json({_END: True})])]
    control = start_guard(libexec, GuardDescriptors(os.pidfd_open(os.getpid())), encode(steps))
    control.settimeout(plan.start_timeout_s)
    try:
        while (note := _note(control.recv(MAX_PACKET))) != to_json({_END: True}):
            hooks.take_note(note)
    finally:
        control.close()
    return hooks


def _note(packet: bytes) -> str:
    text = packet[1:].decode("utf-8", "surrogateescape")
    if packet.startswith(protocol.CE_REPORT_NOTE.encode()):
        return text
    raise explain(text) if packet else LaunchError("the session ended", see="launcher-ended")
