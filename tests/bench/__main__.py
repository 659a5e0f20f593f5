"""`make bench`: measure, print a table, write build/bench.json.

RUNS (default 25) is the number of rounds. A missed budget is shown, but is not a failure.
"""

import os
import sys
import time
from pathlib import Path

from ce_sandbox.layout import from_environment
from tests.bench import (
    footprint,
    hooks,
    job_steps,
    many,
    mpi,
    node_starts,
    others,
    planning,
    results,
    scale,
    slurm_starts,
    tasks,
)
from tests.bench.place import place
from tests.bench.user import ROOT, BenchError, User

RESULT = Path("build") / "bench.json"
DEFAULT_ROUNDS = 25


def _rounds() -> int:
    text = os.environ.get("RUNS") or str(DEFAULT_ROUNDS)
    if not text.isdecimal() or int(text) < 1:
        raise BenchError(f"RUNS={text}: must be a number from 1")
    return int(text)


def _measure(rounds: int) -> list[results.Row]:
    with place(from_environment(os.environ)) as here, User(here.worker) as user:
        try:
            return [
                *slurm_starts.measure(user, here, rounds),
                *node_starts.measure(user, here, rounds),
                *planning.measure(user, here, rounds),
                *tasks.measure(user, rounds),
                *job_steps.measure(user, here, rounds),
                *footprint.measure(user, here),
                *hooks.measure(user, here, rounds),
                *mpi.measure(user, here, from_environment(os.environ), rounds),
                *many.measure(user, here),
                *scale.measure(user, rounds),
            ]
        finally:
            user.run(others.stop_podman(here))


def main() -> int:
    begin = time.monotonic()
    try:
        rounds = _rounds()
        rows = _measure(rounds)
    except BenchError as error:
        print(f"bench: error: {error}", file=sys.stderr)
        return 1
    results.write(rows, ROOT / RESULT)
    print(results.table(rows))
    load = os.getloadavg()[0]
    seconds = time.monotonic() - begin
    print(
        f"\n{RESULT}: {rounds} rounds, all ways in turn, {seconds:.0f} s, {os.cpu_count()} CPUs, "
        f"load {load:.1f}; figures of another run do not compare, ratios do"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
