"""`make bench-scale NODES="64 1000"`: what grows with the number of nodes, all on this machine.

Prints a table with a column for each number of nodes, then a straight line through the first two,
its prediction for the last beside what was measured, and for clusters that fit on no machine.
Other work of the machine changes times, but neither processor times, which are those of a cgroup
of the sandbox's own, nor what is counted.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

from ce_sandbox import daemons
from ce_sandbox.layout import Layout, from_environment
from tests.bench.place import ENVIRONMENT
from tests.bench.user import ROOT

_UNIFIED = Path("/sys/fs/cgroup/unified")
_CGROUPS = _UNIFIED if _UNIFIED.is_dir() else Path("/sys/fs/cgroup")
_ROUNDS, _MANY = 3, 256  # with more nodes than that a step takes so long that one has to do
_IDLE_S = 300.0
_TRACED_NODES = 4
_FAILING = f'base_environment = "{ENVIRONMENT}"\nmounts = ["/nowhere:/mnt"]\n'
_LARGER = (2700, 10000)
# where each session mounts a file system of its own
_IN_MEMORY = "container-engine/session"
_HERE = re.compile(r"AT_FDCWD<[^>]*>")
# what nodes send to slurmctld by themselves
_UNASKED = ("REQUEST_STATS_INFO", "MESSAGE_NODE_REGISTRATION_STATUS", "REQUEST_PING")
_OPENS = ("open", "openat", "openat2")
_LOOK_UPS = ("mkdir", "mkdirat", "stat", "newfstatat", "statx", "unlinkat", "getdents64", "access")
_READS, _WRITES = ("read", "pread64", "recvfrom", "recvmsg"), ("write", "pwrite64")
Figures = dict[str, float]


class Sandbox:
    """The sandbox's cluster, whose processes are all in one cgroup."""

    def __init__(self, layout: Layout, cgroup: Path) -> None:
        self.layout = layout
        self._cgroup = cgroup

    def used_s(self) -> float:
        self.settle()
        fields = dict(line.split() for line in (self._cgroup / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6

    def settle(self) -> None:
        """Wait until no job is left, not even one that is completing."""
        deadline = time.monotonic() + _IDLE_S
        while self.slurm("squeue", "-h"):
            if time.monotonic() > deadline:
                raise TimeoutError("the cluster does not become idle")
            time.sleep(0.25)
        time.sleep(0.5)

    def slurm(self, *argv: str) -> str:
        """Return what a command of Slurm prints; munged refuses some while all nodes end a job."""
        env = {**os.environ, "SLURM_CONF": str(self.layout.slurm_conf)}
        deadline = time.monotonic() + _IDLE_S
        while True:
            done = subprocess.run(argv, env=env, check=False, capture_output=True, text=True)
            if done.returncode == 0:
                return done.stdout
            if time.monotonic() > deadline:
                raise RuntimeError(f"{argv}: {done.returncode}: {done.stderr}")
            time.sleep(1)

    def user(self, *argv: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(ROOT / "sandbox" / "run"), *argv], capture_output=True, text=True, cwd="/"
        )
        if done.returncode != code:
            raise RuntimeError(f"{argv}: {done.returncode}: {done.stderr[-2000:]}")
        return done

    def step(self, nodes: int, *options: str) -> tuple[float, float, float]:
        """Return seconds, processor seconds and messages to slurmctld of a step of one task each.

        The job's end, with its epilogs, is part of the two last.
        """
        before, asked = self.used_s(), self.messages()
        begin = time.monotonic()
        self.user("srun", "-Q", f"-N{nodes}", f"-n{nodes}", *options, "true")
        seconds = time.monotonic() - begin
        return seconds, self.used_s() - before, self.messages() - asked

    def messages(self) -> float:
        """Return how many messages slurmctld has had because of jobs."""
        _before, _head, types = self.slurm("sdiag").partition("statistics by message type")
        found = re.findall(r"(\w+) +\( *\d+\) count:(\d+)", types.partition("\n\n")[0])
        return float(sum(int(number) for name, number in found if name not in _UNASKED))

    def threads(self) -> int:
        return len((self._cgroup / "cgroup.threads").read_text().split())

    def memory(self) -> Counter[str]:
        """Return the memory (PSS) of all processes in KiB, by their names."""
        found: Counter[str] = Counter()
        for pid in (self._cgroup / "cgroup.procs").read_text().split():
            with suppress(OSError):  # it has ended
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                found[name] += int(rollup.partition("\nPss:")[2].split()[0])
        return found

    @property
    def home(self) -> Path:
        return self.layout.home(self.layout.users[0])


@contextmanager
def own_cgroup() -> Iterator[Path]:
    """Move this process, and so all that it starts, into a cgroup of its own."""
    before = Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    cgroup = _CGROUPS / f"ce-bench-{os.getpid()}"
    cgroup.mkdir()
    (cgroup / "cgroup.procs").write_text("0")
    try:
        yield cgroup
    finally:
        (_CGROUPS / before / "cgroup.procs").write_text("0")
        cgroup.rmdir()


def measure(sandbox: Sandbox, nodes: int) -> Figures:
    ours = f"--environment={ENVIRONMENT}"
    sandbox.step(nodes, ours)  # what a node records once
    rounds = _ROUNDS if nodes <= _MANY else 1
    pairs = [(sandbox.step(nodes), sandbox.step(nodes, ours)) for _round in range(rounds)]
    native, more = (
        [median(values) for values in zip(*steps, strict=True)]
        for steps in (
            [native for native, _ours in pairs],
            [[b - a for a, b in zip(*pair, strict=True)] for pair in pairs],
        )
    )
    figures: Figures = {
        "a native step, s": native[0],
        "more with a container, s": more[0],
        "processor time per node, native, ms": 1000 * native[1] / nodes,
        "processor time per node, more, ms": 1000 * more[1] / nodes,
        "messages to slurmctld, native": native[2],
        "messages to slurmctld, more": more[2],
    }
    figures |= _of_srun(sandbox, nodes) | _of_nodes(sandbox, nodes) | _of_the_home(sandbox)
    return figures | _held(sandbox, nodes) | _all_fail(sandbox, nodes)


def _of_srun(sandbox: Sandbox, nodes: int) -> Figures:
    """Count the planners, and what srun is sent, in a step with a container and in a native one."""
    seen: dict[str, Counter[str]] = {}
    for way, options in {"native": (), "ours": (f"--environment={ENVIRONMENT}",)}.items():
        sandbox.settle()
        trace = sandbox.home / "scratch" / "srun.strace"
        strace = ["strace", "-f", "-y", "-qq", "-o", str(trace)]
        strace += ["-e", "trace=execve,accept4,accept,read,recvfrom,recvmsg"]
        sandbox.user(*strace, "srun", "-Q", f"-N{nodes}", f"-n{nodes}", *options, "true")
        lines = trace.read_text(errors="replace").splitlines()
        seen[way] = _calls(lines, {"socket": "<socket:"})
        planner = f'"{sandbox.layout.prefix}/libexec/container-engine/plan"'
        names = [name for name, rest in _whole(lines) if name != "execve" or planner in rest]
        seen[way]["planners"] = names.count("execve")
        seen[way]["accepted"] = names.count("accept") + names.count("accept4")
        trace.unlink()
    ours, native = seen["ours"], seen["native"]
    return {
        "planners": ours["planners"],
        "connections to srun, native": native["accepted"],
        "connections to srun, more": ours["accepted"] - native["accepted"],
        "bytes read by srun, native": native["socket bytes read"],
        "bytes read by srun, more": ours["socket bytes read"] - native["socket bytes read"],
    }


def _of_nodes(sandbox: Sandbox, nodes: int) -> Figures:
    """Return what some nodes ask of each file system, times the number of nodes.

    The step's first node, which has more to do, is one of them, and counted once.
    """
    layout = sandbox.layout
    places = {
        "image": f"{layout.images}/",
        "home": f"{sandbox.home}/",
        "engine": f"{layout.prefix}/",
    }
    first, *others = sorted(
        {1 + (nodes - 1) * i // _TRACED_NODES for i in range(_TRACED_NODES + 1)}
    )
    sandbox.settle()
    with _traced(layout, (first, *others)) as traces:
        sandbox.user(
            "srun", "-Q", f"-N{nodes}", f"-n{nodes}", f"--environment={ENVIRONMENT}", "true"
        )
        sandbox.settle()
    counts = [_calls(trace.read_text(errors="replace").splitlines(), places) for trace in traces]
    for trace in traces:
        trace.unlink()
    names = ("opens", "other requests", "reads", "bytes read", "writes", "bytes written")
    return {
        f"{place}: {name}": counts[0][f"{place} {name}"]
        + (nodes - 1) * median([each[f"{place} {name}"] for each in counts[1:]] or [0])
        for place in places
        for name in names
        if any(each[f"{place} {name}"] for each in counts)
    }


@contextmanager
def _traced(layout: Layout, indexes: Sequence[int]) -> Iterator[list[Path]]:
    """Trace all that these nodes' slurmd start meanwhile."""
    traces = [layout.tmp / f"n{index}.strace" for index in indexes]
    calls = ",".join((*_OPENS, *_LOOK_UPS, *_READS, *_WRITES))
    tracers = []
    for index, trace in zip(indexes, traces, strict=True):
        [pid] = daemons.node(layout, f"n{index}").pids()
        argv = [
            "strace",
            "-f",
            "-y",
            "-qq",
            "-o",
            str(trace),
            "-e",
            f"trace={calls}",
            "-p",
            str(pid),
        ]
        tracers.append(subprocess.Popen(argv))
    time.sleep(1)
    try:
        yield traces
    finally:
        for tracer in tracers:
            tracer.send_signal(signal.SIGINT)
            tracer.wait()


def _calls(lines: Sequence[str], places: Mapping[str, str]) -> Counter[str]:
    """Count the calls on each place's files. O_PATH opens nothing on a file server."""
    found: Counter[str] = Counter()
    for name, rest in _whole(lines):
        kind = "reads" if name in _READS else "writes" if name in _WRITES else "other requests"
        is_transfer = kind != "other requests"
        before, _equals, result = rest.rpartition(" = ")
        where = rest.partition(">")[0] if is_transfer else _HERE.sub("", before)
        for place, text in places.items():
            if text not in where or _IN_MEMORY in where or "O_PATH" in where:
                continue
            found[f"{place} {'opens' if name in _OPENS else kind}"] += 1
            if is_transfer and (number := result.partition(" ")[0]).isdecimal():
                way = "read" if kind == "reads" else "written"
                found[f"{place} bytes {way}"] += int(number)
    return found


def _whole(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield name and rest of each call that strace saw; it cuts those during which others ran."""
    begun: dict[str, str] = {}
    for line in lines:
        pid, _blank, call = line.partition(" ")
        call = call.strip()
        if call.endswith(" <unfinished ...>"):
            begun[pid] = call.removesuffix(" <unfinished ...>")
            continue
        if call.startswith("<... "):
            call = begun.pop(pid, "") + call.partition(" resumed>")[2]
        name, _bracket, rest = call.partition("(")
        yield name, rest


def _of_the_home(sandbox: Sandbox) -> Figures:
    """Return what the newest step left there, and what `ce trace` takes to show it."""
    traces = sandbox.home / ".local/state/container-engine/trace"
    newest = max(traces.iterdir(), key=lambda step: step.stat().st_mtime)
    files = [file.stat() for file in newest.iterdir()]
    figures: Figures = {
        "files left in the home": len(files),
        "their KiB on disk": sum(file.st_blocks for file in files) / 2,
    }
    ce = str(sandbox.layout.prefix / "bin" / "ce")
    ways = {"ce trace": ("last",), "ce trace --json": ("last", "--json"), "ce trace, a list": ()}
    for name, options in ways.items():
        begin = time.monotonic()
        done = sandbox.user(ce, "trace", *options)
        figures[f"{name}, s"] = time.monotonic() - begin
        figures[f"{name}, KiB"] = len(done.stdout) / 1024
    return figures


def _held(sandbox: Sandbox, nodes: int) -> Figures:
    """Return memory (PSS) and threads of the whole cluster while a step holds its containers."""
    sandbox.settle()
    srun = ["srun", "-Q", f"-N{nodes}", f"-n{nodes}", f"--environment={ENVIRONMENT}"]
    step = subprocess.Popen(
        [str(ROOT / "sandbox" / "run"), *srun, "sh", "-c", "echo up; exec cat >/dev/null"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert step.stdout is not None
    for _node in range(nodes):
        assert step.stdout.readline() == "up\n"
    threads, kept = sandbox.threads(), sandbox.memory()
    step.communicate()
    ours = sum(kept[name] for name in ("ce-guard", "ce-image", ".ce-init"))
    return {
        "memory of containers, MiB": ours / 1024,
        "memory of slurmd and slurmstepd, MiB": (kept["slurmd"] + kept["slurmstepd"]) / 1024,
        "threads of the whole cluster": threads,
    }


def _all_fail(sandbox: Sandbox, nodes: int) -> Figures:
    """Count what a user sees of a step that fails on every node."""
    sandbox.settle()
    edf = sandbox.layout.tmp / "failing.toml"
    edf.write_text(_FAILING)
    srun = ("srun", "-Q", f"-N{nodes}", f"-n{nodes}", f"--environment={edf}", "true")
    lines = sandbox.user(*srun, code=125).stderr.splitlines(keepends=True)
    own = [line for line in lines if line.startswith("ce: ")]
    edf.unlink()
    return {
        "all nodes fail: error blocks": sum(line.startswith("ce: error: ") for line in own),
        "all nodes fail: bytes of ours": len("".join(own)),
        "all nodes fail: lines of srun's": len(lines) - len(own),
    }


def table(measured: Mapping[int, Figures]) -> Iterator[str]:
    """Yield Markdown: the figures, and what a line through the first two says of more nodes.

    Times are not predicted: all nodes share the processors of this machine.
    """
    small, middle, last = (list(measured)[index] for index in (0, 1, -1))
    heads = [f"{nodes:,}" for nodes in measured]
    heads += [f"{nodes:,} predicted" for nodes in (last, *_LARGER)]
    yield f"| nodes | {' | '.join(heads)} |"
    yield f"|---|{'---:|' * len(heads)}"
    for name in measured[last]:
        values = [figures.get(name, 0) for figures in measured.values()]
        each = (values[1] - values[0]) / (middle - small)
        lines = [_number(values[0] + each * (nodes - small)) for nodes in (last, *_LARGER)]
        predicted = [""] * len(lines) if name.endswith((", s", ", ms")) else lines
        yield f"| {name} | {' | '.join([*map(_number, values), *predicted])} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def main(argv: list[str]) -> int:
    counts = [1, *map(int, argv or ["64"])]
    up, down = (str(ROOT / "sandbox" / name) for name in ("up", "down"))
    with own_cgroup() as cgroup:
        sandbox = Sandbox(from_environment(os.environ), cgroup)
        subprocess.run([down], check=True, stdout=subprocess.DEVNULL)
        try:
            begin = time.monotonic()
            subprocess.run([up, "-n", str(max(counts))], check=True, stdout=subprocess.DEVNULL)
            print(f"{max(counts)} nodes: up in {time.monotonic() - begin:.0f} s", file=sys.stderr)
            measured = {}
            for nodes in counts:
                measured[nodes] = measure(sandbox, nodes)
                print(f"{nodes} nodes: {measured[nodes]}", file=sys.stderr)
        finally:
            subprocess.run([down], check=True, stdout=subprocess.DEVNULL)
    print("\n".join(table(measured)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
