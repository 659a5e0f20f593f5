"""The ssh hook on a node: a server in the container, and logins between the job's containers.

Host and user keys are derived from the job's secret (node/job_secret.py of the engine), the same on
each node. They exist only in a tmpfs of the container and in the server's memory.
"""

from __future__ import annotations

import os

from ce_ssh.server import BUNDLE, JOB, NODES, SshServer
from container_engine.node.container.description import NodeMount
from container_engine.node.hooks.prepare import missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.node.container.edits import HookEdits
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import HookUse

_CONFIG = "/etc/ssh/ssh_config"
# an ssh client before 7.3 would fail at the keyword Include
_FIRST_LINES = f"IgnoreUnknown Include\nInclude {JOB}/ssh_config"
_CLIENTS = ("ssh", "scp", "sftp")


def files(prefix: str) -> tuple[str, ...]:
    """Return the files that a node needs."""
    return (f"{prefix}/libexec/container-engine/ssh/bin/dropbear",)


def prepare(hook: HookUse, plan: NodePlan, node: Mapping[str, str], edits: HookEdits) -> None:
    """Add the server and its clients. Raise LaunchError if the programs are not on this node."""
    del plan
    programs = f"{edits.libexec}/ssh"
    if not all(map(os.path.exists, files(edits.prefix))):
        why = "the container engine was installed without the ssh server"
        raise missing(hook, f"'{programs}' does not exist on this node: {why}")
    server = SshServer(hook, node, edits)
    edits.mounts.append(NodeMount("bind", programs, BUNDLE, ("ro",)))
    edits.mounts.append(NodeMount("tmpfs", "tmpfs", JOB, ("mode=0700", "size=64m")))
    if server.records:
        edits.mounts.append(NodeMount("bind", server.records, NODES, ("ro",)))
    edits.operations.append(("root-first", [edits.root, _CONFIG, _FIRST_LINES]))
    edits.operations += [
        ("root-link", [edits.root, f"/usr/bin/{name}", f"{BUNDLE}/path/{name}"])
        for name in _CLIENTS
    ]
    edits.services.append({"hook": "ssh", "name": "dropbear", "server": server})
