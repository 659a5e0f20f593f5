"""Later steps of one job: natively, in the job's container, in one of their own, and in ch-run."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import others
from tests.bench.place import ENVIRONMENT, Place
from tests.bench.results import Row, duration
from tests.bench.samples import interleave
from tests.bench.user import User

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_JOIN_MS = 10
_JOIN = "joins the job's container, in which a step runs"
# the first starts of an environment are Python's; all later ones are measured
_FIRST = 3


def measure(user: User, here: Place, rounds: int) -> list[Row]:
    """Measure steps of a job whose script is a step in a container that it shares."""
    joined, continued = (_shared(here.dir / f"{name}.toml") for name in ("joined", "continued"))
    hold = f"srun --overlap --environment={joined} sleep infinity"
    with user.job(hold) as job:
        wait = f"until squeue -hs -j {job} | grep -q '{job}[.]0'; do sleep 0.1; done"
        user.run(["sh", "-c", wait])
        srun = ["srun", f"--jobid={job}", "--overlap", "-N1", "-n1"]
        return _steps(user, here, srun, (joined, continued), rounds)


def _steps(
    user: User, here: Place, srun: list[str], shared: tuple[Path, Path], rounds: int
) -> list[Row]:
    charliecloud, variables = others.charliecloud_task(here)
    joined, continued = shared
    ways: dict[str, Callable[[], float]] = {
        "native": lambda: user.run([*srun, "true"]),
        _JOIN: lambda: user.run([*srun, f"--environment={joined}", "true"]),
        "goes on with the job's container, in which no step runs": lambda: user.run(
            [*srun, f"--environment={continued}", "true"]
        ),
        "has a container of its own": lambda: user.run(
            [*srun, f"--environment={ENVIRONMENT}", "true"]
        ),
        "uses ch-run x.sqsh": lambda: user.run([*srun, *charliecloud], variables),
    }
    interleave(ways, _FIRST)
    measured = interleave(ways, rounds)
    native = measured.pop("native")
    rows = [duration("a later step of a job, native", native)]
    for way, samples in measured.items():
        row = duration(
            f"a later step that {way}, more than native",
            samples.minus(native),
            against=("native step", native),
        )
        rows.append(row)
    join = duration(f"milliseconds more of a step that {_JOIN}", measured[_JOIN].minus(native))
    return [*rows, Row(**{**vars(join), "budget": _MAX_JOIN_MS})]


def _shared(path: Path) -> Path:
    """Write an environment whose container lives with the job."""
    scope = '[annotations]\ncom.ce.scope = "job"\n'
    path.write_text(f'base_environment = "{ENVIRONMENT}"\nwritable = true\n{scope}')
    path.chmod(0o644)
    return path
