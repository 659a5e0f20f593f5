"""Steps as the ordinary user of a GPU machine, the time limit and tables."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

STATE = Path("/var/lib/ce-gpu")
WORK = STATE / "work"  # the user's
FACTS = STATE / "facts.json"
CONFIGURATION = Path("/etc/slurm")
USER, UID = "ce-gpu", 2001
STEP_S = 240
SHORT = bool(os.environ.get("CE_GPU_DRY"))  # a test of the scripts: small and few
PREFIX, PYTHON = (Path(__file__).with_name("places")).read_text().split()


class StepError(Exception):
    """A step that should have succeeded did not."""


@dataclass(frozen=True)
class Done:
    """The end of a step: its exit code, output and duration in seconds."""

    code: int
    out: str
    err: str
    took_s: float

    def said(self) -> dict[str, float]:
        """Return the JSON object that the step printed last. Raise StepError if it failed."""
        if self.code:
            raise StepError(f"exit code {self.code}: {self.err.strip()[-1500:]}")
        values: dict[str, float] = json.loads(self.out.splitlines()[-1])
        return values


def left_s() -> float:
    """Return the seconds that are left until LIMIT_S."""
    limit, begin = os.environ.get("LIMIT_S"), os.environ.get("CE_GPU_BEGIN")
    return float(limit) - (time.time() - float(begin or time.time())) if limit else float("inf")


def environment(**more: str) -> dict[str, str]:
    path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    user = {"HOME": str(WORK), "USER": USER, "LOGNAME": USER, "PATH": path, "LANG": "C.UTF-8"}
    return {**user, "SLURM_CONF": str(CONFIGURATION / "slurm.conf"), **more}


def start_as_user(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        argv,
        cwd=WORK,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        user=UID,
        group=UID,
        extra_groups=[],
    )


def finish(child: "subprocess.Popen[str]", begin: float, limit_s: float = STEP_S) -> Done:
    """Wait for a command; after the limit kill it, with exit code 124."""
    try:
        out, err = child.communicate(timeout=max(1, min(limit_s, left_s())))
    except subprocess.TimeoutExpired:
        child.kill()
        out, err = child.communicate()
        return Done(124, out, f"{err}\nended after {limit_s} s", time.perf_counter() - begin)
    return Done(child.returncode, out, err, time.perf_counter() - begin)


def as_user(*argv: str, limit_s: float = STEP_S, env: Mapping[str, str] | None = None) -> Done:
    begin = time.perf_counter()
    return finish(start_as_user(argv, env or {}), begin, limit_s)


def srun(*words: str, inside: bool, edf: str = "torch") -> tuple[str, ...]:
    return ("srun", "-Q", *([f"--environment={STATE}/edf/{edf}.toml"] if inside else []), *words)


def facts() -> dict[str, str]:
    """Return what `start` wrote: python, the program that has PyTorch, and versions."""
    found: dict[str, str] = json.loads(FACTS.read_text())
    return found


def gpu(count: int = 1) -> tuple[str, ...]:
    """Return options for a task with processors and memory, and so many GPUs."""
    size = ("-c1", "--mem=1G") if SHORT else (f"-c{min(8, os.cpu_count() or 1)}", "--mem=32G")
    return (*size, f"--gpus={count}") if count else size


def work(what: str, *words: str) -> tuple[str, ...]:
    """Return the command that does something of workload.py."""
    return (facts()["python"], "-B", str(WORK / "workload.py"), what, *words)


@dataclass
class Report:
    """Prints lines and writes them to a file of $OUT at once, so that a limit loses nothing."""

    name: str
    failed: list[str] = field(default_factory=list)
    file: TextIO | None = None

    def line(self, text: str) -> None:
        print(text, flush=True)
        directory = Path(os.environ.get("OUT") or STATE)
        if self.file is None:
            self.file = (directory / f"{self.name}.txt").open("a")
            print(os.environ.get("CE_GPU_VERSIONS", ""), file=self.file)
        print(text, file=self.file, flush=True)

    def fail(self, what: str, why: str) -> None:
        self.failed.append(what)
        self.line(f"{what}: FAILED: {' | '.join(why.strip().splitlines())}")

    def end(self) -> int:
        self.line(f"{len(self.failed)} failed: {', '.join(self.failed)}" if self.failed else "done")
        return 1 if self.failed else 0


Values = Mapping[str, float]
Once = Callable[[bool], Values]


@dataclass
class Group:
    """Measures that come from the same steps: a name and a unit for each of their keys."""

    rows: Mapping[str, tuple[str, str]]
    once: Once
    rounds: int
    part: float = 1.0  # of the time that is left, at most

    def measure(self, report: Report) -> None:
        """Measure native and inside in turn, until the rounds or the time are over."""
        pairs: list[dict[bool, Values]] = []
        budget, begin, longest = left_s() * self.part, time.monotonic(), 0.0
        for number in range(1 if SHORT else self.rounds):
            now = time.monotonic()
            if now - begin + 1.3 * longest > budget or left_s() < 5:
                break
            try:
                order = (False, True) if number % 2 == 0 else (True, False)
                pairs.append({inside: self.once(inside) for inside in order})
            except (StepError, ValueError, KeyError, IndexError) as error:
                report.fail(next(iter(self.rows.values()))[0], str(error))
                break
            longest = max(longest, time.monotonic() - now)
        for key, (name, unit) in self.rows.items():
            known = [pair for pair in pairs if key in pair[False] and key in pair[True]]
            if known:
                report.line(row(name, unit, [(p[False][key], p[True][key]) for p in known]))
            elif not pairs:
                report.line(f"{name:34} | not measured: too little time, or failed")


def row(name: str, unit: str, pairs: Sequence[tuple[float, float]]) -> str:
    """Return medians, their ratio, and the least and the greatest ratio of one round."""
    native, inside = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
    each = [b / a for a, b in pairs]
    ratio = f"{inside / native:6.3f} | {min(each):5.3f} to {max(each):5.3f}"
    return f"{name:34} | {native:10.3f} | {inside:10.3f} | {ratio} | {unit}, {len(pairs)} rounds"


HEAD = f"{'':34} | {'native':>10} | {'inside':>10} |  ratio | of single rounds | unit"


def main_of(main: Callable[[], int]) -> None:
    """Run a script's main and exit with its code; a StepError is one line and code 1."""
    try:
        sys.exit(main())
    except StepError as error:
        print(f"FAILED: {error}", flush=True)
        sys.exit(1)
