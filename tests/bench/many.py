"""Many containers on this machine, one for each task, all from one image, all alive together.

Those started in turn tell how long a task waits for its container while hundreds of others live;
those that are asked for at one moment share the processors, and tell how long all of them take.
"""

import os
from collections import Counter
from collections.abc import Sequence

from tests.bench import others
from tests.bench.footprint import mebibytes, of_sessions
from tests.bench.place import Place
from tests.bench.processors import used_s
from tests.bench.results import Row, duration
from tests.bench.samples import Samples
from tests.bench.user import User

_BY_HAND, _COUNT = 50, 500
_P50_MS, _P99_MS, _MIB = 25, 150, 2
_IN_TURN = f"{_COUNT} containers of tasks that live at once, started in turn"
_NAME = f"{_COUNT} more, asked for at once"
_ALL = f"{2 * _COUNT} containers of tasks"
_ENVIRONMENT = """base_environment = "demo"
writable = true
[annotations]
com.ce.scope = "task"
"""


def measure(user: User, here: Place) -> list[Row]:
    """Measure the launcher's answers to tasks without Slurm, which alone takes longer."""
    environment = here.dir / "each.toml"
    environment.write_text(_ENVIRONMENT)
    environment.chmod(0o644)
    plan = user.output([str(here.plan), str(environment)])
    crun, crun_environment = others.crun_by_hand(here)
    by_hand = Samples(tuple(user.ready(crun, crun_environment) for _ in range(_BY_HAND)))
    crun_at_once = Samples(tuple(user.ready_at_once(crun, _COUNT)))
    before, before_s = {pid for pid, _name, _kib in of_sessions()}, used_s()
    taken = user.many(here.node, plan, _COUNT, _COUNT)
    used_ms = 1000 * (used_s() - before_s) / (2 * _COUNT)
    kept = [(name, kib) for pid, name, kib in of_sessions() if pid not in before]
    seconds = user.many_ended()
    names = Counter(name for name, _kib in kept)
    processors = os.cpu_count() or 1
    return [
        duration(
            "a container of a task, started in turn",
            Samples(tuple(taken["single"])),
            against=("by hand, crun run, in turn", by_hand),
        ),
        *_percentiles(_IN_TURN, taken["single"]),
        duration(
            _NAME,
            Samples(tuple(taken["at_once"])),
            against=(f"by hand, crun run, {_COUNT} at once", crun_at_once),
        ),
        *_percentiles(_NAME, taken["at_once"]),
        Row(f"{_ALL}: processor time each, {processors} processors", round(used_ms, 2), "ms"),
        Row(f"{_ALL}: memory (PSS) each", mebibytes(kept, 2 * _COUNT), "MiB", budget=_MIB),
        Row(f"{_ALL}: image servers", names["ce-image"], "processes", budget=1),
        Row(f"{_ALL}: their end", round(1000 * seconds, 1), "ms"),
    ]


def _percentiles(name: str, times: Sequence[float]) -> list[Row]:
    """Return rows of the time after which half of the containers, and 99 of 100, had started."""
    half, most = (1000 * sorted(times)[int(len(times) * part)] for part in (0.5, 0.99))
    return [
        Row(f"{name}: half of them", round(half, 1), "ms", budget=_P50_MS),
        Row(f"{name}: 99 of 100", round(most, 1), "ms", budget=_P99_MS),
    ]
