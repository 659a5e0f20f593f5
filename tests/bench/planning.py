"""Work of the submit side before Slurm is asked for anything."""

from typing import TYPE_CHECKING

from tests.bench.place import ENVIRONMENT, Place
from tests.bench.results import Row, duration
from tests.bench.samples import interleave
from tests.bench.user import User

if TYPE_CHECKING:
    from collections.abc import Callable

_BUDGET_MS = 60


def measure(user: User, here: Place, rounds: int) -> list[Row]:
    plan = [str(here.plan), "--for", "srun", "--", ENVIRONMENT]
    levels = [*plan[:-1], str(here.four_levels)]
    # Without a place for answers every plan is a new one.
    forgetful = {"XDG_CACHE_HOME": "/proc/none"}
    python = [str(here.prefix / "libexec" / "python3"), "-ISE", "-c", "pass"]
    ways: dict[str, Callable[[], float]] = {
        "python": lambda: user.run(python),
        "warm": lambda: user.run(plan),
        "cold": lambda: user.run(plan, forgetful),
        "warm, four levels": lambda: user.run(levels),
        "cold, four levels": lambda: user.run(levels, forgetful),
    }
    measured = interleave(ways, rounds)
    bare = ("python3 -ISE -c pass", measured["python"])
    warm = duration("planning, cached", measured["warm"])
    deep = duration("planning, cached, four levels", measured["warm, four levels"])
    return [
        Row(**{**vars(warm), "budget": _BUDGET_MS}),
        Row(**{**vars(deep), "budget": _BUDGET_MS}),
        duration("planning, cached, beside bare Python", measured["warm"], against=bare),
        duration("planning, anew", measured["cold"], against=bare),
        duration("planning, anew, four levels", measured["cold, four levels"], against=bare),
        *(_planners(nodes, user, here) for nodes in (1, 2)),
    ]


def _planners(nodes: int, user: User, here: Place) -> Row:
    """Count the planners that srun starts, which must not depend on the number of nodes."""
    srun = ["srun", f"-N{nodes}", f"--environment={ENVIRONMENT}", "true"]
    trace = here.dir / f"planners-{nodes}"
    user.step(["strace", "-f", "-o", str(trace), "-e", "trace=execve", *srun])
    started = sum(
        f'execve("{here.plan}"' in line and line.rstrip().endswith("= 0")
        for line in trace.read_text(errors="replace").splitlines()
    )
    return Row(f"planners started by srun -N{nodes}", started, "processes", budget=1)
