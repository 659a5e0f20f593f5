"""Random faults during a start.

Processes are killed, stopped and starved, files removed, daemons ended, disks filled, and
registries fail. A fault waits for a phase of the start, recognised by the process that does its
work, so that it hits that phase on a slow machine, too.
"""

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.slurm import procfs
from tests.slurm.cluster import Cluster, sandbox
from tests.slurm.polling import until
from tests.slurm.procfs import Process

_LATEST_S = 0.08  # after the phase has begun
_LONGEST_PAUSE_S = 1.5
_PHASE_WITHIN_S = 20
_PAGE, _MIB = 4096, 1 << 20
_DAEMONS = ("slurmctld", "slurmd", "munged")
# Each phase is recognised by the name of a process of the user, or of root's slurmstepd.
PHASES = (
    "",  # at once
    "plan",
    "slurmstepd",
    "ce-task",
    "launcher",
    "ce-guard",
    "ce-image",
    "crun",
    ".ce-init",
    "sleep",  # the task's own command, followed by the end of the step
)
_IMPORTING = ("", "plan", "python3", "skopeo", "tar2sqfs")
_KINDS = {
    "kill a process": 6,
    "stop a process": 3,
    "slow a process": 2,
    "freeze a step": 2,
    "terminate a process": 2,
    "starve a process of memory": 2,
    "starve a process of descriptors": 2,
    "kill slurmstepd": 2,
    "kill srun": 2,
    "cancel the job": 2,
    "pause a daemon": 2,
    "restart slurmctld": 1,
    "restart slurmd": 1,
    "restart munged": 1,
    "remove the image": 1,
    "cut the image": 1,
    "fill the home": 1,
    "leave little room": 1,
    "allow few processes": 1,
}
_IMPORT_KINDS = {
    "kill the registry": 2,
    "stop the registry": 1,
    "fill the store": 2,
    "kill a process": 4,
    "terminate a process": 1,
    "kill srun": 1,
}
_SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "stop": signal.SIGSTOP}
_IMPORT_SHARE, _AGAIN_SHARE = 0.1, 0.5
# what a new start has to do: follow links of the image that dangle, or have Podman do its work
_WAYS = ("", "links", "links", "podman", "links podman")


@dataclass(frozen=True)
class Fault:
    """A fault: its kind, its phase, the delay after the phase begins, and its duration."""

    kind: str
    phase: str
    after_s: float
    lasts_s: float
    choice: float  # from 0 to 1: which of the candidates, or how much
    imports: bool  # the image must be imported first
    again: bool  # the node repeats an earlier start, with a hook
    way: str  # one of _WAYS

    def __str__(self) -> str:
        when = f"{1000 * self.after_s:.0f} ms into {self.phase or 'srun'}"
        what = f"{self.kind} (import)" if self.imports else self.kind
        what += " (again)" if self.again else ""
        what += f" ({self.way})" if self.way else ""
        return f"{what}, {when}, for {1000 * self.lasts_s:.0f} ms"

    @property
    def ends_a_daemon(self) -> bool:
        return self.kind.startswith("restart ")


def choose(source: random.Random) -> Fault:
    imports = source.random() < _IMPORT_SHARE
    again = not imports and source.random() < _AGAIN_SHARE
    kinds = dict(_IMPORT_KINDS if imports else _KINDS)
    if again:
        # this one changes the environment, so the start would not repeat an earlier one
        del kinds["leave little room"]
    phase = source.choice(_IMPORTING if imports else PHASES)
    latest = 0.6 if phase in {"", "sleep", "tar2sqfs"} else _LATEST_S
    return Fault(
        source.choices(list(kinds), list(kinds.values()))[0],
        phase,
        source.uniform(0, latest),
        source.uniform(0.05, _LONGEST_PAUSE_S),
        source.random(),
        imports,
        again,
        "" if imports or again else source.choice(_WAYS),
    )


@dataclass(frozen=True)
class Scene:
    """The target of a fault: the user's processes, the image, the directories that may fill up."""

    cluster: Cluster
    user: str
    uid: int
    image: Path
    full: Path  # a small file system that the user writes to, if there is one
    is_over: Callable[[], bool]  # True when there is no target any more


def inflict(fault: Fault, scene: Scene) -> str:
    """Wait for the phase and inflict the fault; return the target, or "nobody"."""
    _await_phase(fault.phase, scene)
    time.sleep(fault.after_s)
    return _strike_a_place(fault, scene) or _strike_a_process(fault, scene)


def _strike_a_place(fault: Fault, scene: Scene) -> str:
    """Inflict a fault of a file or directory; return "" if the fault is one of a process."""
    hit = ""
    match fault.kind.split():
        case ["leave" | "allow", *_]:
            hit = "from the beginning"
        case ["remove", "the", "image"]:
            scene.image.unlink(missing_ok=True)
            hit = str(scene.image)
        case ["cut", "the", "image"]:
            os.truncate(scene.image, scene.image.stat().st_size // 2)
            hit = str(scene.image)
        case ["fill", *_]:
            hit = _fill(scene.full)
    return hit


def _strike_a_process(fault: Fault, scene: Scene) -> str:
    match fault.kind.split():
        case ["cancel", *_]:
            scene.cluster.cancel_all(scene.user)
            return "the job"
        case ["restart", daemon]:
            return _restart(daemon, fault)
    victim = _victim(fault, scene.uid)
    if victim is None:
        return "nobody"
    with suppress(ProcessLookupError):
        _hurt(victim, fault)
    return f"{victim.comm} {victim.pid}"


def _await_phase(name: str, scene: Scene) -> None:
    deadline = time.monotonic() + _PHASE_WITHIN_S
    while name and time.monotonic() < deadline and not scene.is_over():
        if any(_is_of_phase(pid, name, scene.uid) for pid in filter(str.isdecimal, _pids())):
            return
        time.sleep(0.001)


def _pids() -> list[str]:
    return os.listdir(procfs.PROC)


def _is_of_phase(pid: str, name: str, uid: int) -> bool:
    try:
        if (procfs.PROC / pid / "comm").read_text().rstrip("\n") != name:
            return False
    except OSError:
        return False
    found = procfs.process(int(pid))
    if found is None or not found.lives:
        return False
    return _serves(found, uid) if name == "slurmstepd" else found.uid == uid


def _hurt(victim: Process, fault: Fault) -> None:
    words = fault.kind.split()
    if words[0] == "slow":
        threading.Thread(target=_stutter, args=(victim.pid, fault.lasts_s)).start()
    elif words[0] == "starve":
        _starve(victim, words[-1], fault.choice)
    elif words[0] == "freeze":
        freeze(victim, fault.lasts_s)
    else:
        number = _SIGNALS.get(words[0], signal.SIGSTOP)
        os.kill(victim.pid, number)
        if number is signal.SIGSTOP:
            threading.Timer(fault.lasts_s, _signal, [victim.pid, signal.SIGCONT]).start()


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _stutter(pid: int, lasts_s: float) -> None:
    end = time.monotonic() + lasts_s
    while time.monotonic() < end:
        _signal(pid, signal.SIGSTOP)
        time.sleep(0.05)
        _signal(pid, signal.SIGCONT)
        time.sleep(0.005)


def _starve(victim: Process, of: str, choice: float) -> None:
    """Limit the process to hardly more memory or descriptors than it has."""
    directory = procfs.PROC / str(victim.pid)
    try:
        if of == "memory":
            has = int((directory / "statm").read_text().split()[0]) * _PAGE
            option = f"--as={has + int(choice * 4 * _MIB)}"
        else:
            has = len(os.listdir(directory / "fd"))
            option = f"--nofile={has + int(choice * 6)}"
    except FileNotFoundError:
        return
    # On a machine that is itself a container, root may not do that to another user's process.
    argv = ["prlimit", f"--pid={victim.pid}", option]
    subprocess.run(argv, user=victim.uid, extra_groups=[], stderr=subprocess.DEVNULL, check=False)


def freeze(victim: Process, lasts_s: float) -> None:
    """Let all of the process's step wait, as Slurm itself does to suspend it."""
    with suppress(OSError):
        group = victim.cgroups().get("freezer", "")
        if "/step_" not in group:
            return
        state = Path(f"/sys/fs/cgroup/freezer{group}/freezer.state")
        state.write_text("FROZEN")
        time.sleep(lasts_s)
        state.write_text("THAWED")


def _fill(place: Path) -> str:
    with suppress(OSError), (place / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * _PAGE)
    return f"{place} is full"


def _restart(daemon: str, fault: Fault) -> str:
    """Kill a daemon and start it again after a while.

    Only slurmctld is ended by SIGTERM first. When it is killed, it loses the changes of some
    seconds and ends jobs that it takes for pending when a node reports that they run. No bystander,
    in a container or not, survives that.
    """
    victims = [p for p in procfs.processes() if p.lives and p.comm == daemon]
    if daemon == "slurmctld":
        _end(victims)
    if daemon == "slurmd":
        victims = [sorted(victims, key=lambda p: p.command)[int(fault.choice * len(victims))]]
    for victim in victims:
        _signal(victim.pid, signal.SIGKILL)
    time.sleep(fault.lasts_s)
    bring_up()
    return f"{daemon} {', '.join(str(victim.pid) for victim in victims)}"


def _end(daemons: list[Process]) -> None:
    for daemon in daemons:
        _signal(daemon.pid, signal.SIGTERM)
        until(f"the end of {daemon.comm}", partial(_is_gone, daemon.pid))


def _is_gone(pid: int) -> bool:
    found = procfs.process(pid)
    return found is None or not found.lives


def bring_up() -> None:
    """Start the parts of the cluster that have ended, and resume drained nodes."""
    done = sandbox("up")
    assert done.returncode == 0, done.stderr


def _victim(fault: Fault, uid: int) -> Process | None:
    candidates = [process for process in procfs.processes() if process.lives]
    match fault.kind.split()[1:]:
        case ["a", "daemon"]:
            found = [process for process in candidates if process.comm in _DAEMONS]
        case ["the", "registry"]:
            found = [child for child in _children() if child.comm.startswith("docker-reg")]
        case ["slurmstepd"]:
            found = [process for process in candidates if process.comm == "slurmstepd"]
            # Exclude the one that serves the bystander, who is another user.
            found = [process for process in found if _serves(process, uid)]
        case ["srun"]:
            found = [p for p in candidates if p.uid == uid and p.comm == "srun"]
        case _:
            found = [p for p in candidates if p.uid == uid and p.comm not in ("srun", "setpriv")]
    return found[int(fault.choice * len(found))] if found else None


def _children() -> list[Process]:
    """Return the processes that this test run has started itself, such as the registry."""
    found = map(procfs.process, map(int, filter(str.isdecimal, _pids())))
    return [child for child in found if child and child.lives and child.parent == os.getpid()]


def _serves(stepd: Process, uid: int) -> bool:
    """Check that a slurmstepd has no children of users other than this one."""
    owners = {process.uid for process in procfs.processes() if process.parent == stepd.pid}
    return owners <= {uid, 0}


@contextmanager
def small_file_system(places: list[Path], uid: int, gid: int, size: str) -> Iterator[None]:
    """Mount on each directory a small tmpfs that the user may write; unmount it at the end."""
    options = f"size={size},uid={uid},gid={gid},mode=0700"
    for place in places:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
    try:
        yield
    finally:
        for place in places:
            subprocess.run(["umount", "--lazy", place], check=True)
