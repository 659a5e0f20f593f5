"""Launch without Slurm, for `ce run`: this process becomes the command."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from container_engine.base import reaper
from container_engine.base.errors import UserError
from container_engine.node.container.guard import GuardDescriptors, entering
from container_engine.node.inside import programs
from container_engine.node.start.container import checked, start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from container_engine.node.node_plan import NodePlan


def run_in_container(
    plan: NodePlan,
    argv: Sequence[str],
    libexec: str,
    started: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Start the container and become the command in it, with its terminal, signals and exit code.

    Call `started` when the image is mounted and everything is set up. The session ends with this
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
    ready = start(plan, os.environ, GuardDescriptors(this), libexec)
    reaper.start(libexec, "processes", (this, ready.guard, ready.mount_ns))
    ready.go_on()
    started()
    for line in (*plan.notices, *ready.warnings):
        sys.stderr.write(f"ce: warning: {line}\n")
    sys.stderr.flush()
    sys.stdout.write(ready.printed)
    sys.stdout.flush()
    entered = (ready.user_ns, *ready.unshared)
    words = entering(libexec, entered, ready.mount_ns, ready.records, ready.workdir)
    # os.environ also has the variables that ce-start hides from Python, such as LD_PRELOAD
    programs.become([*words, *argv], os.environ)
