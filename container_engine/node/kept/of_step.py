"""Join the container of a running step that gave it no name: JOB.STEP names it, as with pyxis.

The container ends with its step, and so do the steps that have joined it.
"""

from __future__ import annotations

import os

from container_engine.base.errors import UserError
from container_engine.node import protocol
from container_engine.node.container.guard import in_order
from container_engine.node.inside import tasks
from container_engine.node.kept.container import KeptOnNode, Running
from container_engine.node.kept.directories import refusal
from container_engine.node.node_name import node_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.node.plan_types import KeptContainer


def enter(wanted: KeptContainer, node: Mapping[str, str]) -> Running:
    """Return the container of the step JOB.STEP. Raise LaunchError if it cannot be joined."""
    job, _dot, step = wanted["name"].partition(".")
    if wanted["mode"] not in ("auto", "exec"):
        hint = f"leave ':{wanted['mode']}' out"
        raise refusal("the container of a step can only be joined", hint, wanted)
    try:
        task = tasks.find(job, step, node_name(node))
        guard, first = tasks.guard_and_init(task)
        names = {
            protocol.CE_AT_USER_NS: "ns/user",
            protocol.CE_AT_MOUNT_NS: "ns/mnt",
            protocol.CE_AT_ENVIRONMENT: "environ",
            protocol.CE_AT_MOUNTS: "mountinfo",
        }
        every = (*in_order(names), *tasks.unshared(task))
        at_first = [os.open(name, os.O_RDONLY, dir_fd=first.directory) for name in every]
        fds = [os.open(f"/proc/{guard}/ns/user", os.O_RDONLY), *at_first]
    except UserError as error:
        raise refusal(error.reason, error.hint or "", wanted) from None
    except OSError as error:
        raise refusal(f"it has ended: {error.strerror}", "", wanted) from None
    return Running(KeptOnNode(wanted, "", -1, ""), fds, ())
