"""Start and stop the cluster's daemons, and wait until they are ready."""

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

# The nodes of one machine share its processors.
START_TIMEOUT_S, NODE_START_S = 60.0, 0.3
STOP_TIMEOUT_S = 10.0
NODE_STOP_TIMEOUT_S = 2.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Daemon:
    """A daemon of the cluster that runs in the foreground, in a session of its own."""

    name: str
    argv: list[str]

    def pids(self) -> list[int]:
        return list(processes.running([self.argv]))


def program(name: str) -> str:
    """Return the absolute path of a system program, even if sbin is not on the caller's PATH."""
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
            "--num-threads=32",
        ],
    )


def controller(layout: Layout) -> Daemon:
    return Daemon("slurmctld", [program("slurmctld"), "-D", "-f", str(layout.slurm_conf)])


def node(layout: Layout, name: str) -> Daemon:
    argv = [program("slurmd"), "-D", "-N", name, "-f", str(layout.slurm_conf)]
    return Daemon(f"slurmd-{name}", argv)


def all_daemons(layout: Layout, nodes: int) -> list[Daemon]:
    """Return every daemon of a cluster of `nodes` nodes, in starting order."""
    slurmds = [node(layout, name) for name in config.node_names(nodes)]
    return [munged(layout), controller(layout), *slurmds]


def pids(these: Sequence[Daemon]) -> dict[str, list[int]]:
    """Map the daemons' names to their processes, found in one look at all of the machine's."""
    found = processes.running([daemon.argv for daemon in these])
    return {
        daemon.name: [pid for pid, argv in found.items() if argv == daemon.argv] for daemon in these
    }


def start_missing(layout: Layout, these: Sequence[Daemon]) -> None:
    """Start those of the daemons that do not run."""
    running = {tuple(argv) for argv in processes.running([d.argv for d in these]).values()}
    for daemon in these:
        if tuple(daemon.argv) not in running:
            start(layout, daemon)


def put_first(layout: Layout) -> None:
    """Run munged and slurmctld before everything else, as if on machines of their own.

    Among the processes of a thousand nodes they answer too late, and Slurm loses messages.
    """
    for found in pids([munged(layout), controller(layout)]).values():
        for pid in found:
            subprocess.run(["chrt", "--all-tasks", "--fifo", "--pid", "1", str(pid)], check=True)


def start(layout: Layout, daemon: Daemon, before: Sequence[str] = ()) -> None:
    """Start the daemon, which does not run; append its output to a log file.

    `before` is a command line that executes the daemon's own, which is appended to it.
    """
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
    # Popen returns while the kernel still reads the program from disk. Until that is done the
    # process has no command line, by which a running daemon is recognised.
    while not processes.is_running(process.pid, daemon.argv) and process.poll() is None:
        time.sleep(0.001)


def _environment(layout: Layout) -> dict[str, str]:
    """Return the daemons' environment, with variables that tests/sanitizers writes to a file."""
    more: dict[str, str] = {}
    if layout.daemons_environment.exists():
        lines = layout.daemons_environment.read_text().splitlines()
        more = {name: value for name, _equals, value in (line.partition("=") for line in lines)}
    return {"PATH": _PATH, "LANG": "C.UTF-8", "SLURM_CONF": str(layout.slurm_conf), **more}


def restart(layout: Layout, slurmd: Daemon, nodes: int, before: Sequence[str] = ()) -> None:
    """Restart one node and wait until all can take jobs; its running steps continue."""
    _stop([slurmd], NODE_STOP_TIMEOUT_S)
    start(layout, slurmd, before)
    wait_for_nodes(layout, nodes)


def make_munge_key(layout: Layout) -> None:
    """Create the sandbox's own munge key once, so that only its daemons trust each other."""
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

    For a restarted slurmd the controller may still report the previous state.
    """
    wanted = set(config.node_names(count))
    log = layout.log / "slurmctld.log"
    slurmctld = controller(layout)
    _until(lambda: _serves(layout.controller_port), "slurmctld to listen", slurmctld, log)
    for index, name in enumerate(config.node_names(count)):
        slurmd, port = node(layout, name), layout.first_node_port(count) + index
        _until(
            partial(_serves, port), f"{name} to listen", slurmd, layout.log / f"slurmd-{name}.log"
        )
    try:
        _until(
            lambda: _usable_nodes(layout) >= wanted,
            f"{count} nodes to be up",
            slurmctld,
            log,
            START_TIMEOUT_S + NODE_START_S * count,
        )
    except SandboxError as error:
        states = ", ".join(f"{name} {state}" for name, state in node_states(layout).items())
        raise SandboxError(f"{error} ({states})", error.hint) from None


def _usable_nodes(layout: Layout) -> set[str]:
    """Return the nodes that can take a job, and resume drained ones.

    A node is drained when a task could not be killed.
    """
    states = node_states(layout)
    drained = [name for name, state in states.items() if state.startswith("drain")]
    if drained:
        _client(layout, "scontrol", "update", f"nodename={','.join(drained)}", "state=resume")
    return {name for name, state in states.items() if is_usable(state)}


def is_usable(state: str) -> bool:
    """Check whether a node in this state can take a job.

    A state ends in a mark when the node does not respond (`*`) or is starting (`#`). The mark `+`
    is not about the node's health: another of its jobs is about to end.
    """
    return state.removesuffix("+") in {"idle", "mixed", "allocated", "completing"}


def node_states(layout: Layout) -> dict[str, str]:
    """Map node names to states as Slurm prints them; empty if the controller does not answer."""
    if not controller(layout).pids():
        return {}
    done = _client(layout, "sinfo", "--noheader", "--Node", "--format=%N %T")
    return dict(line.split() for line in done.stdout.splitlines()) if done.returncode == 0 else {}


def _serves(port: int) -> bool:
    """Check whether a port accepts connections; Slurm's clients would retry for a long time."""
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _succeeds(argv: list[str]) -> bool:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True)
    return done.returncode == 0


def _until(
    ready: Callable[[], bool],
    what: str,
    daemon: Daemon,
    log: Path,
    within_s: float = START_TIMEOUT_S,
) -> None:
    """Poll until the daemon is ready, as daemons do not announce it.

    Raise SandboxError if the daemon ends or the time is up.
    """
    deadline = time.monotonic() + within_s
    while not ready():
        if not daemon.pids():
            raise SandboxError(f"{daemon.name} ended: {_last_line(log)}", f"see {log.parent}")
        if time.monotonic() > deadline:
            raise SandboxError(
                f"waited {within_s:.0f} s for {what}: {_last_line(log)}", f"see {log.parent}"
            )
        time.sleep(0.05)


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return f"no {log.name}"
    return lines[-1] if lines else f"{log.name} is empty"


def stop_slurm(layout: Layout) -> None:
    """Stop the controller and every slurmd; steps continue.

    A slurmd that can no longer reach the controller may take long to end, and it has no state worth
    waiting for. So the nodes are stopped first, and killed after a short wait.
    """
    nodes = [node(layout, name) for name in config.node_names(MAX_NODES)]
    _stop(nodes, NODE_STOP_TIMEOUT_S)
    _stop([controller(layout)], STOP_TIMEOUT_S)


def _stop(daemons: list[Daemon], timeout_s: float) -> None:
    for signum in (signal.SIGTERM, signal.SIGKILL):
        command_lines = [daemon.argv for daemon in daemons]
        processes.stop(processes.running(command_lines), signum, timeout_s)


def cancel_jobs(layout: Layout) -> None:
    """Cancel every job if the controller is running; steps get Slurm's KillWait to end."""
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
