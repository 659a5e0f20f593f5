"""`sandbox/node`: make one node differ from the others, for example to break something on it."""

import argparse
import os
from pathlib import Path

from ce_sandbox import daemons
from ce_sandbox.layout import Layout, SandboxError
from ce_sandbox.up import configured_nodes

# Later mounts of the machine still propagate into the node, mounts made in the node stay there.
# Podman requires shared mounts.
_APART = (
    *("unshare", "--mount", "--propagation", "slave", "sh", "-c"),
    *('mount --make-rshared / && exec "$@"', "sh"),
)


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sandbox/node",
        description="Run a command as root in a node's own mount namespace: what it mounts there,"
        " only that node has. The first time the node's slurmd is started again for that.",
        epilog="example: sandbox/node n2 mount --bind /dev/null /dev/fuse",
    )
    parser.add_argument(
        "--again", action="store_true", help="start the node as it was, without differences"
    )
    parser.add_argument(
        "--chroot",
        action="store_true",
        help="start the node in a chroot of the same files, where no user namespace can be made",
    )
    parser.add_argument("name", metavar="NODE")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="cmd …")
    args = parser.parse_args(argv)
    if args.command[:1] == ["--"]:
        del args.command[0]
    return args


def main(argv: list[str], layout: Layout) -> int:
    args = arguments(argv)
    if os.geteuid() != 0:
        raise SandboxError("sandbox/node: needs root")
    slurmd = daemons.node(layout, args.name)
    if not slurmd.pids():
        raise SandboxError(f"{args.name}: no such node runs", "sandbox/status")
    if args.again:
        daemons.restart(layout, slurmd, configured_nodes(layout))
    elif args.chroot:
        root = layout.dir / "tmp" / f"root-{args.name}"
        root.mkdir(exist_ok=True)
        before = f'mount --make-rshared / && mount --rbind / {root} && exec chroot {root} "$@"'
        words = (*_APART[:-2], before, "sh")
        daemons.restart(layout, slurmd, configured_nodes(layout), words)
    elif not _is_apart(slurmd.pids()[0]):
        daemons.restart(layout, slurmd, configured_nodes(layout), _APART)
    return _run(slurmd.pids()[0], args.command) if args.command else 0


def _is_apart(pid: int) -> bool:
    return os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt")


def _run(pid: int, command: list[str]) -> int:
    """Replace this process with the command."""
    if not Path("/usr/bin/nsenter").exists():
        raise SandboxError("nsenter: not installed", "make deps")
    os.execv("/usr/bin/nsenter", ["nsenter", f"--target={pid}", "--mount", "--", *command])
