"""Starts the cluster's daemons, waits until they serve, and stops them."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ce_sandbox import config, processes
from ce_sandbox.layout import MAX_NODES, Layout, SandboxError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
NODE_STOP_TIMEOUT_S = 2.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Daemon:
    """A daemon of the cluster; it runs in the foreground of a session of its own."""

    name: str
    argv: list[str]

    def pids(self) -> list[int]:
        return processes.running([self.argv])


def program(name: str) -> str:
    """The absolute path of a system program, also where sbin is not on the caller's PATH."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise SandboxError(f"{name}: not installed", "make deps")
    return found


def munged(layout: Layout) -> Daemon:
    return Daemon(
        "munged",
        [
            program("munged"),
            "--foreground",
            f"--key-file={layout.munge_key}",
            f"--socket={layout.munge_socket}",
            f"--pid-file={layout.run}/munged.pid",
            f"--log-file={layout.log}/munged.log",
            f"--seed-file={layout.state}/munged.seed",
            "--num-threads=2",
        ],
    )


def controller(layout: Layout) -> Daemon:
    return Daemon("slurmctld", [program("slurmctld"), "-D", "-f", str(layout.slurm_conf)])


def node(layout: Layout, name: str) -> Daemon:
    argv = [program("slurmd"), "-D", "-N", name, "-f", str(layout.slurm_conf)]
    return Daemon(f"slurmd-{name}", argv)


def all_daemons(layout: Layout, nodes: int) -> list[Daemon]:
    """Every daemon of a cluster of `nodes` nodes, in starting order."""
    slurmds = [node(layout, name) for name in config.node_names(nodes)]
    return [munged(layout), controller(layout), *slurmds]


def start(layout: Layout, daemon: Daemon, before: Sequence[str] = ()) -> None:
    """Start it unless it runs. What it prints goes to its log file too.

    `before` is a command line that becomes the daemon when its own is put behind it.
    """
    if daemon.pids():
        return
    out = layout.log / f"{daemon.name}.out"
    with out.open("ab") as log:
        process = subprocess.Popen(
            [*before, *daemon.argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=_environment(layout),
            start_new_session=True,
            umask=0o022,
        )
    # Popen returns while the kernel still reads the program from the disk; until it has, a process
    # shows no command line, by which it is known that a daemon runs.
    while not daemon.pids() and process.poll() is None:
        time.sleep(0.001)


def _environment(layout: Layout) -> dict[str, str]:
    """Lines of the file are added where there is one: tests/sanitizers leaves it."""
    more: dict[str, str] = {}
    if layout.daemons_environment.exists():
        lines = layout.daemons_environment.read_text().splitlines()
        more = {name: value for name, _equals, value in (line.partition("=") for line in lines)}
    return {"PATH": _PATH, "LANG": "C.UTF-8", "SLURM_CONF": str(layout.slurm_conf), **more}


def restart(layout: Layout, slurmd: Daemon, nodes: int, before: Sequence[str] = ()) -> None:
    """Start one node anew and wait until all can take jobs; steps that run on it go on."""
    _stop([slurmd], NODE_STOP_TIMEOUT_S)
    start(layout, slurmd, before)
    wait_for_nodes(layout, nodes)


def make_munge_key(layout: Layout) -> None:
    """A key of our own, once: only daemons of this sandbox trust each other with it."""
    if layout.munge_key.exists():
        return
    fd = os.open(layout.munge_key, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as key:
        key.write(secrets.token_bytes(1024))


def wait_for_munged(layout: Layout) -> None:
    argv = [program("munge"), f"--socket={layout.munge_socket}", "--no-input", "--output=/dev/null"]
    _until(lambda: _succeeds(argv), "munged to answer", munged(layout), layout.log / "munged.log")


def wait_for_nodes(layout: Layout, count: int) -> None:
    """Wait until every node can take a job.

    Of a slurmd that was started again the controller may still say what it knew before.
    """
    wanted = set(config.node_names(count))
    log = layout.log / "slurmctld.log"
    slurmctld = controller(layout)
    _until(lambda: _serves(config.CONTROLLER_PORT), "slurmctld to listen", slurmctld, log)
    for index, name in enumerate(config.node_names(count)):
        slurmd, port = node(layout, name), config.FIRST_NODE_PORT + index
        _until(
            partial(_serves, port), f"{name} to listen", slurmd, layout.log / f"slurmd-{name}.log"
        )
    try:
        _until(
            lambda: _usable_nodes(layout) >= wanted,
            f"{count} nodes to be up",
            slurmctld,
            log,
        )
    except SandboxError as error:
        states = ", ".join(f"{name} {state}" for name, state in node_states(layout).items())
        raise SandboxError(f"{error} ({states})", error.hint) from None


def _usable_nodes(layout: Layout) -> set[str]:
    """Those that can take a job, also those that were drained for a task that did not die."""
    states = node_states(layout)
    drained = [name for name, state in states.items() if state.startswith("drain")]
    if drained:
        _client(layout, "scontrol", "update", f"nodename={','.join(drained)}", "state=resume")
    return {name for name, state in states.items() if is_usable(state)}


def is_usable(state: str) -> bool:
    """States end in a mark when the node does not answer (`*`) or starts (`#`), and in one (`+`)
    that is none of its health: another of its jobs is about to end."""
    return state.removesuffix("+") in {"idle", "mixed", "allocated", "completing"}


def node_states(layout: Layout) -> dict[str, str]:
    """Node name to state as Slurm prints it; empty when the controller does not answer."""
    if not controller(layout).pids():
        return {}
    done = _client(layout, "sinfo", "--noheader", "--Node", "--format=%N %T")
    return dict(line.split() for line in done.stdout.splitlines()) if done.returncode == 0 else {}


def _serves(port: int) -> bool:
    """Slurm's clients retry for long when nobody listens; this answers at once."""
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _succeeds(argv: list[str]) -> bool:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True)
    return done.returncode == 0


def _until(ready: Callable[[], bool], what: str, daemon: Daemon, log: Path) -> None:
    """Daemons tell nobody when they are ready, so ask until they are; not for ever."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready():
        if not daemon.pids():
            raise SandboxError(f"{daemon.name} ended: {_last_line(log)}", f"see {log.parent}")
        if time.monotonic() > deadline:
            raise SandboxError(
                f"waited {START_TIMEOUT_S:.0f} s for {what}: {_last_line(log)}", f"see {log.parent}"
            )
        time.sleep(0.05)


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return f"no {log.name}"
    return lines[-1] if lines else f"{log.name} is empty"


def stop_slurm(layout: Layout) -> None:
    """Stop the controller and every slurmd; steps go on.

    A slurmd that cannot reach the controller any more may take its time to end, and it has no
    state worth waiting for: the nodes go first, and not always politely.
    """
    nodes = [node(layout, name) for name in config.node_names(MAX_NODES)]
    _stop(nodes, NODE_STOP_TIMEOUT_S)
    _stop([controller(layout)], STOP_TIMEOUT_S)


def _stop(daemons: list[Daemon], timeout_s: float) -> None:
    for signum in (signal.SIGTERM, signal.SIGKILL):
        command_lines = [daemon.argv for daemon in daemons]
        processes.stop(processes.running(command_lines), signum, timeout_s)


def cancel_jobs(layout: Layout) -> None:
    """Ask the controller, when it runs, to end every job; their steps get Slurm's KillWait."""
    if not controller(layout).pids():
        return
    jobs = _client(layout, "squeue", "--noheader", "--format=%A").stdout.split()
    if jobs:
        _client(layout, "scancel", "--quiet", *jobs)


def _client(layout: Layout, name: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program(name), *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={"SLURM_CONF": str(layout.slurm_conf), "PATH": _PATH},
    )
