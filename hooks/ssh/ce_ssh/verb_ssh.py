"""`ce ssh JOB [-- COMMAND]`: become ssh, with the options that the job's server has recorded."""

from __future__ import annotations

import os
import pwd
import shlex
from typing import TYPE_CHECKING

from ce_ssh import record
from container_engine.base.errors import SiteError, UserError
from container_engine.base.files import with_given_umask
from container_engine.base.process import reason
from container_engine.printing import output

if TYPE_CHECKING:
    import argparse

    from ce_ssh.record import Server
    from container_engine.submit.context import Context

SSH_FAILED = 255


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-w", "--node", metavar="NODE", help="on this node; else on the first")
    parser.add_argument(
        "--print", action="store_true", help="print the command line of ssh instead of running it"
    )
    parser.add_argument("job", metavar="JOB", help="a job, or a step: JOB.STEP")
    command = parser.add_argument(
        "command", metavar="COMMAND", nargs="...", help="a command, after --; else a login"
    )
    command.required = False
    parser.usage = "ce ssh [-h] [-w NODE] [--print] JOB[.STEP] [-- COMMAND [ARGUMENT ...]]"
    parser.set_defaults(failure=SSH_FAILED)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    server = _chosen(recorded(arguments.job, context), arguments.job, arguments.node)
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    # as with ssh, one word is a line for the remote shell; several are a command and its arguments
    argv = [*_argv(server), *([shlex.join(words)] if len(words) > 1 else words)]
    if arguments.print:
        output.line(shlex.join(argv))
        return 0
    with_given_umask()
    try:
        # with the variables that ce-start keeps from Python
        os.execvpe(argv[0], argv, os.environ)
    except OSError as error:
        raise SiteError(f"cannot start ssh: {reason(error)}", "install openssh-client") from None


def recorded(job: str, context: Context) -> list[Server]:
    """Return the servers of a job. Raise UserError if none is known, or none has a key file."""
    records = record.root(context.env, pwd.getpwuid(context.uid).pw_dir)
    found = record.servers(records, job)
    if not found:
        raise UserError(
            f"no ssh server of yours is known ({records})",
            'the job\'s environment needs com.hooks.ssh.enabled = "true", and has to run',
            where=job,
        )
    if not any(server.key_file for server in found):
        raise UserError(
            "its environment has no public key, so only its own containers can log in",
            'authorize_ssh_key = "${HOME}/.ssh/id_ed25519.pub" in [annotations.com.hooks.ssh]',
            where=job,
        )
    return found


def _chosen(servers: list[Server], job: str, node: str | None) -> Server:
    if node is None:
        return servers[0]
    chosen = next((server for server in servers if server.node == node), None)
    if chosen is None:
        names = ", ".join(server.node for server in servers)
        raise UserError(f"has no ssh server on {node}", f"it has on {names}", where=job)
    return chosen


def _argv(server: Server) -> list[str]:
    options = {
        "HostKeyAlias": record.HOST_KEY_ALIAS,
        "UserKnownHostsFile": f'"{server.known_hosts}"',
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "CheckHostIP": "no",
    }
    argv = ["ssh", *(f"-o{name}={value}" for name, value in options.items())]
    private = server.key_file.removesuffix(".pub")
    if private != server.key_file and os.path.exists(private):
        argv += ["-i", private]
    return [*argv, "-p", str(server.port), "-l", server.user, server.address]
