"""Many containers at once on this machine, one for each task, all from one image."""

import os
from collections import Counter

from tests.bench import others
from tests.bench.footprint import mebibytes, of_sessions
from tests.bench.place import Place
from tests.bench.processors import used_s
from tests.bench.results import Row, duration
from tests.bench.samples import Samples
from tests.bench.user import User

_SINGLE, _COUNT = 50, 500
_P50_MS, _P99_MS, _MIB = 25, 150, 2
_NAME = f"{_COUNT} containers of tasks at once"
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
    by_hand = Samples(tuple(user.ready(crun, crun_environment) for _ in range(_SINGLE)))
    before, before_s = {pid for pid, _name, _kib in of_sessions()}, used_s()
    taken = user.many(here.node, plan, _SINGLE, _COUNT)
    used_ms = 1000 * (used_s() - before_s) / (_SINGLE + _COUNT)
    kept = [(name, kib) for pid, name, kib in of_sessions() if pid not in before]
    seconds = user.many_ended()
    names = Counter(name for name, _kib in kept)
    at_once = sorted(taken["at_once"])
    half, most = (1000 * at_once[int(len(at_once) * part)] for part in (0.5, 0.99))
    processors = os.cpu_count() or 1
    return [
        duration(
            "a container of a task, one after the other",
            Samples(tuple(taken["single"])),
            against=("by hand, crun run, in turn", by_hand),
        ),
        Row(f"{_NAME}: half of them", round(half, 1), "ms", budget=_P50_MS),
        Row(f"{_NAME}: 99 of 100", round(most, 1), "ms", budget=_P99_MS),
        Row(f"{_NAME}: processor time each, {processors} processors", round(used_ms, 2), "ms"),
        Row(f"{_NAME}: memory (PSS) each", mebibytes(kept, _COUNT + _SINGLE), "MiB", budget=_MIB),
        Row(f"{_NAME}: image servers", names["ce-image"], "processes", budget=1),
        Row(f"{_NAME}: their end", round(1000 * seconds, 1), "ms"),
    ]
