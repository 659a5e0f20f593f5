"""A start on one node without Slurm, from nothing to a container that a task can join."""

from typing import TYPE_CHECKING

from tests.bench import others
from tests.bench.place import ENVIRONMENT, Place
from tests.bench.results import Row, duration
from tests.bench.samples import interleave
from tests.bench.user import User

if TYPE_CHECKING:
    from collections.abc import Callable

_BY_HAND = "by hand, podman run"


def measure(user: User, here: Place, rounds: int) -> list[Row]:
    plan = user.output([str(here.plan), ENVIRONMENT])
    podman, podman_environment = others.podman_by_hand(here)
    crun, crun_environment = others.crun_by_hand(here)
    nothing, nothing_environment = others.nothing_by_hand(here)
    usual, clean_up, usual_environment = others.podman_detached(here)
    ways: dict[str, Callable[[], float]] = {
        "ours": lambda: user.launch(here.node, plan),
        _BY_HAND: lambda: user.ready(podman, podman_environment),
        "by hand, crun run": lambda: user.ready(crun, crun_environment),
        "by hand, mounts only": lambda: user.ready(nothing, nothing_environment),
        "podman run --rootfs, unpacked": lambda: user.run(usual, usual_environment, clean_up),
    }
    measured = interleave(ways, rounds)
    reference = (_BY_HAND, measured[_BY_HAND])
    return [
        duration(
            f"node part of a start: {way}",
            samples,
            against=None if way == _BY_HAND else reference,
            budget=1.3 if way == "ours" else None,
        )
        for way, samples in measured.items()
    ]
