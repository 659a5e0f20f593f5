"""End tasks in bad ways, native and contained, and look at what is left, on the cluster of `start`.

Each way must have the same exit code and the same reason natively and inside. Afterwards the GPU's
memory is free again, and no process, mount, cgroup or job is left. Also in $OUT/reliability.txt.
"""

import ctypes
import functools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.gpu import start
from tests.gpu.cluster import (
    SHORT,
    UID,
    USER,
    Done,
    Report,
    environment,
    finish,
    left_s,
    main_of,
    srun,
    start_as_user,
    work,
)

PATIENCE_S = 20.0
READY_S = 60.0
NEAR_BYTES = 64 << 20
# Words of Slurm (before 23.11, and since), the kernel or PyTorch that give a reason.
REASONS = ("oom-kill", "oom_kill", "OutOfMemory", "Killed", "Terminated", "Bus error")


def processes(words: str = "") -> list[int]:
    """Return the user's processes whose command has these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if path.stat().st_uid == UID and words in command:
                found.append(int(path.name))
        except (OSError, UnicodeDecodeError):
            continue
    return found


def gpu_bytes() -> int | None:
    """Return the used memory of the first GPU, or None without NVML."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
        return None
    return None if library.nvmlDeviceGetMemoryInfo(device, memory) else int(memory[2])


def left() -> Mapping[str, int]:
    """Return how many of each kind of thing there are."""
    jobs = subprocess.run(["squeue", "-h"], env=environment(), capture_output=True, text=True)
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    # by a walk, which does not mind that a cgroup is removed meanwhile
    groups = [name for _path, names, _files in os.walk(start.CGROUP) for name in names]
    return {
        "processes": len(processes()),
        "mounts": sum(" fuse" in line or "/ce-" in line for line in mounts),
        "cgroups": sum(name.startswith("step_") for name in groups),
        "jobs": len(jobs.stdout.splitlines()),
    }


def remains(before: Mapping[str, int], memory: int | None) -> str:
    """Wait until all is as before; return what is not, after a patience."""
    end = time.monotonic() + PATIENCE_S
    while True:
        now, used = left(), gpu_bytes()
        more = [f"{count - before[k]} {k}" for k, count in now.items() if count > before[k]]
        if memory is not None and used is not None and used > memory + NEAR_BYTES:
            more.append(f"{(used - memory) >> 20} MiB of the GPU")
        if not more or time.monotonic() > end:
            return ", ".join(more)
        time.sleep(0.5)


def cancel(*options: str) -> None:
    subprocess.run(["scancel", "-u", USER, *options], env=environment())


def kill_outside() -> None:
    """Kill the task, the one of its processes that runs the program itself."""
    for number in processes("workload.py hold wait"):
        if b"srun" not in Path(f"/proc/{number}/comm").read_bytes():
            os.kill(number, signal.SIGKILL)


def attempt(how: str, act: Callable[[], None] | None, inside: bool) -> Done:
    """Run a task that holds memory, and act on it when it is ready."""
    memory = "400M" if SHORT else "6G"
    argv = srun("--gpus=1", "-c1", f"--mem={memory}", *work("hold", how), inside=inside)
    begin = time.perf_counter()
    child = start_as_user(argv, {})
    if act is not None:
        ready(child)
        act()
    return finish(child, begin, 120)


def ready(child: "subprocess.Popen[str]") -> None:
    """Wait until the task prints that it is ready, or has ended, or for READY_S."""
    if child.stdout is None:
        return
    os.set_blocking(child.stdout.fileno(), False)
    end = time.monotonic() + READY_S
    while child.poll() is None and time.monotonic() < end:
        try:
            if b"ready" in (os.read(child.stdout.fileno(), 4096) or b"ready"):
                break
        except BlockingIOError:
            time.sleep(0.1)
    os.set_blocking(child.stdout.fileno(), True)


def reason(done: Done) -> str:
    text = done.out + done.err
    return " ".join(word for word in REASONS if word.lower() in text.lower()) or "no word"


WAYS: Mapping[str, tuple[str, Callable[[], None] | None]] = {
    "kill -9 by itself": ("kill", None),
    "kill -9 from outside": ("wait", kill_outside),
    "scancel": ("wait", cancel),
    "scancel -s KILL": ("wait", functools.partial(cancel, "-s", "KILL")),
    "out of memory": ("oom", None),
    "out of the GPU's memory": ("gpu-oom", None),
}


def main() -> int:
    start.prepare()
    report = Report("reliability")
    report.line(f"{'':24} | native | inside | reason")
    before, memory = left(), gpu_bytes()
    for name, (how, act) in WAYS.items():
        if left_s() < 60:
            report.line(f"{name:24} | not tried: too little time")
            continue
        ends, dirt = [], []
        for inside in (False, True):
            ends.append(attempt(how, act, inside))
            dirt.append(remains(before, memory))
        (native, contained), codes = ends, [done.code for done in ends]
        reasons = [reason(done) for done in ends]
        if codes[0] != codes[1] or reasons[0] != reasons[1] or dirt[1]:
            said = f"exit codes {codes}, {reasons}, left {dirt}: {native.err} {contained.err}"
            report.fail(name, said[-2500:])
        else:
            # a cgroup that Slurm itself is slow to remove is no fault of the container
            natively = f" (natively: {dirt[0]})" if dirt[0] else ""
            end = f"{reasons[1]}; nothing left{natively}"
            report.line(f"{name:24} | {codes[0]:6} | {codes[1]:6} | {end}")
    return report.end()


if __name__ == "__main__":
    main_of(main)
