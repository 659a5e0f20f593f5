"""Many nodes, all of them on this machine, and many tasks on one of them."""

import subprocess
from collections.abc import Callable

from tests.bench.footprint import MAX_MIB, REST_S, kept_while, mebibytes
from tests.bench.place import ENVIRONMENT
from tests.bench.processors import used_s
from tests.bench.results import Row, duration
from tests.bench.samples import Samples, interleave
from tests.bench.user import ROOT, BenchError, User

_NODES, _TASKS = 64, 256
# One round takes seconds, as all nodes share the processors of this machine.
_MAX_ROUNDS = 5
_MAX_NODE_MS = 30


def measure(user: User, rounds: int) -> list[Row]:
    """Measure with many nodes and many tasks; leave the cluster with two nodes."""
    _nodes(_NODES)
    try:
        ways = {
            f"{_NODES} nodes, a task on each": [f"-N{_NODES}", f"-n{_NODES}"],
            f"{_TASKS} tasks on one node": ["-N1", f"-n{_TASKS}", "--overcommit"],
        }
        rows = [
            row
            for name, options in ways.items()
            for row in _starts(user, name, options, min(rounds, _MAX_ROUNDS))
        ]
        kept = kept_while((f"-N{_NODES}", f"-n{_NODES}"), REST_S)
    finally:
        _nodes(2)
    name = f"{_NODES} nodes: memory (PSS) of what stays, per node"
    return [*rows, Row(name, mebibytes(kept, _NODES), "MiB", budget=MAX_MIB)]


def _starts(user: User, name: str, options: list[str], rounds: int) -> list[Row]:
    srun = ["srun", *options, "--cpu-bind=none"]
    used: dict[str, list[float]] = {"native": [], "ours": []}

    def step(way: str, *options: str) -> Callable[[], float]:
        def measure() -> float:
            before = used_s()
            seconds = user.step([*srun, *options, "true"])
            used[way].append(used_s() - before)
            return seconds

        return measure

    ways = {"native": step("native"), "ours": step("ours", f"--environment={ENVIRONMENT}")}
    measured = interleave(ways, rounds)
    more = measured["ours"].minus(measured["native"])
    rows = [
        duration(f"{name}, native", measured["native"]),
        duration(f"{name}, more with --environment", more, against=("native", measured["native"])),
    ]
    if "-N1" in options:
        return rows
    # the first run of each kind only warmed caches
    native, ours = (Samples(tuple(used[way][1:])) for way in ("native", "ours"))
    name = f"{_NODES} nodes: processor time per node, more than native"
    each = duration(name, ours.minus(native, divided_by=_NODES))
    return [*rows, Row(**{**vars(each), "budget": _MAX_NODE_MS})]


def _nodes(count: int) -> None:
    argv = [str(ROOT / "sandbox" / "up"), "-n", str(count)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"sandbox/up -n {count}: {done.stderr.strip()}")
