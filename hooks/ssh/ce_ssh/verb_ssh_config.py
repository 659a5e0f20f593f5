"""`ce ssh-config JOB`: print lines for the ssh_config of a computer outside the cluster."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ce_ssh.verb_ssh import recorded
from container_engine.printing import output

if TYPE_CHECKING:
    import argparse

    from ce_ssh.record import Server
    from container_engine.submit.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jump",
        metavar="HOST",
        help="the login node to go through; this host if it is not given, none if it is empty",
    )
    parser.add_argument("job", metavar="JOB", help="a job, or a step: JOB.STEP")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    servers = recorded(arguments.job, context)
    jump = this_host() if arguments.jump is None else arguments.jump
    output.line(f"# for ~/.ssh/config; ends with job {arguments.job}")
    for names, server in named(arguments.job, servers).items():
        output.text(block(names, server, jump))
    return 0


def this_host() -> str:
    """Return a host name that other computers may know: many hosts list localhost first."""
    name = socket.getfqdn()
    return socket.gethostname() if name.startswith("localhost") else name


def named(job: str, servers: list[Server]) -> dict[str, Server]:
    """Return the servers by Host names; names with the job's ID mean its first step on a node."""
    found: dict[str, Server] = {}
    nodes: set[str] = set()
    for server in servers:
        known, first = server.node in nodes, not nodes
        nodes.add(server.node)
        name = f"ce-{server.step if known else job}-{server.node}"
        found[f"ce-{job} {name}" if first else name] = server
    return found


def block(names: str, server: Server, jump: str) -> str:
    """Return the Host block of a server.

    It includes the host key, because a prompt that every user confirms protects nobody.
    """
    alias = f"ce-{server.step}"
    jump_line = f"    ProxyJump {server.user}@{jump}\n" if jump else ""
    return (
        f"Host {names}\n"
        f"    HostName {server.address}\n"
        f"    Port {server.port}\n"
        f"    User {server.user}\n"
        f"{jump_line}"
        f"    HostKeyAlias {alias}\n"
        f"    KnownHostsCommand /bin/echo {alias} {server.host_key}\n"
        "    UserKnownHostsFile /dev/null\n"
        "    StrictHostKeyChecking yes\n"
    )
