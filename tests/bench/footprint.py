"""Memory that a container keeps on a node, and opens of its start on the shared file system."""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.place import ENVIRONMENT, Place
from tests.bench.results import Row
from tests.bench.user import ROOT, BenchError, User

_MAX_PROCESSES = 3
MAX_MIB = 4
# ce-image frees its cache two seconds after the last request, at the latest
REST_S = 3.0
_MAX_OPENS = 2
_FIRST_USER = 1000


def measure(user: User, here: Place) -> list[Row]:
    return [*_processes(), *_opens(user, here)]


def kept_while(options: Sequence[str], after_s: float) -> list[tuple[str, int]]:
    """Return name and memory in KiB of each process that a step keeps beside its tasks.

    The processes are listed while the step holds its containers, so many seconds after the tasks
    have reported that they have started.
    """
    others = {process for process, _name, _size in of_sessions()}
    nodes = sum(int(option[2:]) for option in options if option.startswith("-N"))
    script = "echo up; exec cat >/dev/null"  # stdin, and its end, go to all tasks
    srun = ["srun", *options, f"--environment={ENVIRONMENT}", "bash", "-c", script]
    step = subprocess.Popen(
        [str(ROOT / "sandbox" / "run"), *srun],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert step.stdout is not None
    if any(step.stdout.readline() != "up\n" for _node in range(nodes)):
        raise BenchError("the step whose processes are counted did not start")
    time.sleep(after_s)
    kept = [(name, size) for pid, name, size in of_sessions() if pid not in others]
    step.communicate(timeout=60)
    return [(name, size) for name, size in kept if name not in ("bash", "cat")]


def _processes() -> list[Row]:
    begun, kept = (kept_while(("-N1", "-n1"), after_s) for after_s in (0, REST_S))
    names = ", ".join(sorted(name for name, _size in kept))
    rows = [
        Row(
            f"processes that stay per node ({names})", len(kept), "processes", budget=_MAX_PROCESSES
        ),
        Row("their memory (PSS) per node", mebibytes(kept), "MiB", budget=MAX_MIB),
        Row("their memory (PSS) per node as the task begins", mebibytes(begun), "MiB"),
    ]
    return rows + [Row(f"  of it {name}", round(size / 1024, 2), "MiB") for name, size in kept]


def mebibytes(kept: Sequence[tuple[str, int]], nodes: int = 1) -> float:
    """Return the memory of all these processes per node."""
    return round(sum(size for _name, size in kept) / 1024 / nodes, 2)


def of_sessions() -> Iterator[tuple[str, str, int]]:
    """Yield pid, name and memory in KiB of users' processes in PID namespaces other than ours."""
    own = os.readlink("/proc/self/ns/pid")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            users = process.stat().st_uid >= _FIRST_USER
            if users and os.readlink(process / "ns" / "pid") != own:
                rollup = (process / "smaps_rollup").read_text()
                pss = re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)
                name = (process / "comm").read_text().strip()
                yield process.name, name, int(pss[1]) if pss else 0
        except OSError:
            continue  # the process has ended


def _opens(user: User, here: Place) -> list[Row]:
    """Count opens of the image, or of a file beside it, by the launcher and its children.

    O_PATH only looks a name up, and opens nothing on a file server.
    """
    trace = here.dir / "opens"
    strace = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=open,openat,openat2"]
    user.launch(here.node, user.output([str(here.plan), ENVIRONMENT]), strace)
    opened = [
        line
        for line in trace.read_text(errors="replace").splitlines()
        if f'"{here.image.parent}' in line and "O_PATH" not in line
    ]
    return [
        Row("opens on the image's file system per start", len(opened), "opens", budget=_MAX_OPENS)
    ]
