"""`sandbox/down`: stop the cluster, and with --purge remove it."""

import argparse
import os
import shutil
import signal
from pathlib import Path

from ce_sandbox import daemons, machine, processes
from ce_sandbox.layout import Layout, SandboxError


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sandbox/down",
        description="Stop the sandbox's cluster and everything that runs in it.",
    )
    parser.add_argument(
        "--purge", action="store_true", help="also remove its directory, its users and their group"
    )
    return parser.parse_args(argv)


def bring_down(layout: Layout) -> None:
    """Stop jobs and daemons; afterwards no process of the sandbox is left.

    Works in any state, including killed daemons and steps without a daemon.
    """
    if os.geteuid() != 0:
        raise SandboxError("sandbox/down: needs root")
    daemons.cancel_jobs(layout)
    daemons.stop_slurm(layout)
    for _ in range(10):
        left = processes.belonging_to(layout)
        if not left:
            break
        processes.stop(left, signal.SIGKILL, daemons.STOP_TIMEOUT_S)
    else:
        raise SandboxError(f"processes that do not end: {' '.join(map(str, sorted(left)))}")
    _empty(layout.spool)
    _empty(layout.run)


def _empty(directory: Path) -> None:
    """Remove the sockets and credentials that ended steps have left."""
    for entry in directory.iterdir() if directory.is_dir() else ():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def purge(layout: Layout) -> None:
    for change in machine.removals(layout):
        machine.apply(change)
    shutil.rmtree(layout.dir, ignore_errors=False)


def main(argv: list[str], layout: Layout) -> int:
    args = arguments(argv)
    if not layout.dir.is_dir():
        print(f"sandbox: nothing in {layout.dir}")
        return 0
    bring_down(layout)
    settings = machine.recorded(layout)
    if args.purge:
        purge(layout)
        print("sandbox: stopped and removed")
    else:
        print(f"sandbox: stopped; left: {layout.dir} and its users (--purge removes them)")
    for text in settings:
        print(f"sandbox: left as changed until the next boot: {text}")
    return 0
