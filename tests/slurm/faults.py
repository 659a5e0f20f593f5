"""Random faults during a start: processes killed or stopped, files taken away, daemons paused."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.slurm import procfs
from tests.slurm.procfs import Process

_LATEST_S = 0.4  # a start on a quiet machine takes a tenth of a second
_LONGEST_PAUSE_S = 1.5
_DAEMONS = ("slurmctld", "slurmd", "munged")


@dataclass(frozen=True)
class Fault:
    """What is done, how long after the start of srun, and how long it lasts where it ends."""

    kind: str
    after_s: float
    lasts_s: float
    choice: float  # from 0 to 1, which of the candidates

    def __str__(self) -> str:
        return f"{self.kind} after {1000 * self.after_s:.0f} ms for {1000 * self.lasts_s:.0f} ms"


def choose(random_source: random.Random) -> Fault:
    kinds = {
        "kill a process": 5,
        "stop a process": 3,
        "terminate a process": 2,
        "kill slurmstepd": 1,
        "kill srun": 1,
        "cancel the job": 1,
        "pause a daemon": 1,
        "remove the image": 1,
        "cut the image": 1,
    }
    return Fault(
        random_source.choices(list(kinds), list(kinds.values()))[0],
        random_source.uniform(0, _LATEST_S),
        random_source.uniform(0.05, _LONGEST_PAUSE_S),
        random_source.random(),
    )


def inflict(fault: Fault, uid: int, image: Path, cancel: Callable[[], object]) -> str:
    """Waits for the moment and does it. Says what was hit; nothing where nobody was there."""
    time.sleep(fault.after_s)
    match fault.kind:
        case "remove the image":
            image.unlink()
            return str(image)
        case "cut the image":
            os.truncate(image, image.stat().st_size // 2)
            return str(image)
        case "cancel the job":
            cancel()
            return "the job"
    victim = _victim(fault, uid)
    if victim is None:
        return "nobody"
    number = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM}.get(
        fault.kind.split()[0], signal.SIGSTOP
    )
    with suppress(ProcessLookupError):
        os.kill(victim.pid, number)
    if number is signal.SIGSTOP:
        threading.Timer(fault.lasts_s, _go_on, [victim.pid]).start()
    return f"{victim.comm} {victim.pid}"


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _victim(fault: Fault, uid: int) -> Process | None:
    candidates = [process for process in procfs.processes() if process.lives]
    match fault.kind:
        case "pause a daemon":
            found = [process for process in candidates if process.comm in _DAEMONS]
        case "kill slurmstepd":
            found = [process for process in candidates if process.comm == "slurmstepd"]
            # the bystander's is somebody else's
            found = [process for process in found if _serves(process, uid)]
        case "kill srun":
            found = [p for p in candidates if p.uid == uid and p.comm == "srun"]
        case _:
            found = [p for p in candidates if p.uid == uid and p.comm not in ("srun", "setpriv")]
    return found[int(fault.choice * len(found))] if found else None


def _serves(stepd: Process, uid: int) -> bool:
    """Whether a slurmstepd has started a process of this user's, or none of anybody yet."""
    owners = {process.uid for process in procfs.processes() if process.parent == stepd.pid}
    return owners <= {uid, 0}
