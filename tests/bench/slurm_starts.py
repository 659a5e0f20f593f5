"""`srun true` natively, in our container and in others', on one node and on two."""

from typing import TYPE_CHECKING

from tests.bench import others
from tests.bench.place import ENVIRONMENT, Place
from tests.bench.results import Row, duration
from tests.bench.samples import interleave
from tests.bench.user import User

if TYPE_CHECKING:
    from collections.abc import Callable

# ARCHITECTURE: at most 100 ms more on a machine where a native srun takes 32.
_BUDGET = 100 / 32


def measure(user: User, here: Place, rounds: int) -> list[Row]:
    rows: list[Row] = []
    for nodes in (1, 2):
        rows += _on(nodes, user, here, rounds)
    return rows


def _on(nodes: int, user: User, here: Place, rounds: int) -> list[Row]:
    srun = ["srun", f"-N{nodes}", f"-n{nodes}"]
    podman, podman_environment = others.podman_task(here)
    charliecloud, charliecloud_environment = others.charliecloud_task(here)
    ways: dict[str, Callable[[], float]] = {
        "native": lambda: user.step([*srun, "true"]),
        "--environment": lambda: user.step([*srun, f"--environment={ENVIRONMENT}", "true"]),
        'start = "podman"': lambda: user.step([*srun, f"--environment={here.by_podman}", "true"]),
        "--container-image": lambda: user.step([*srun, f"--container-image={here.image}", "true"]),
        "podman run": lambda: user.step([*srun, *podman], podman_environment),
        "ch-run x.sqsh": lambda: user.step([*srun, *charliecloud], charliecloud_environment),
    }
    measured = interleave(ways, rounds)
    native = measured.pop("native")
    name = f"srun -N{nodes} -n{nodes}"
    rows = [duration(f"{name} true, native", native)]
    for way, samples in measured.items():
        budget = _BUDGET if way == "--environment" and nodes == 1 else None
        rows.append(
            duration(
                f"{name}, more with {way}",
                samples.minus(native),
                against=("native srun", native),
                budget=budget,
            )
        )
    return rows
