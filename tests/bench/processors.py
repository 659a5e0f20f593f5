"""Processor time of everything that runs on this machine, or in this sandbox machine."""

from pathlib import Path

from tests.bench.user import BenchError

_V1 = Path("/sys/fs/cgroup/cpuacct/cpuacct.usage")
_V2 = Path("/sys/fs/cgroup/cpu.stat")


def used_s() -> float:
    """Return the processor time used since the start, in seconds. Raise BenchError."""
    try:
        if _V1.exists():
            return int(_V1.read_text()) / 1e9
        fields = dict(line.split() for line in _V2.read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6
    except (OSError, KeyError, ValueError) as error:
        raise BenchError(f"processor time of all processes: {error}") from None
