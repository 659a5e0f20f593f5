"""Measure native and contained steps in turn on the cluster of `start`, and print a table.

What is wanted most comes first. The table is also in $OUT/numbers.txt, line by line; LIMIT_S ends
the measurements in time. ROUNDS: of the first group, default 5. ROWS: names of groups, default all.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.gpu import start
from tests.gpu.cluster import (
    HEAD,
    SHORT,
    WORK,
    Done,
    Group,
    Report,
    StepError,
    Values,
    as_user,
    gpu,
    main_of,
    srun,
    work,
)

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def core(inside: bool) -> Values:
    return as_user(*srun(*gpu(), *work("core"), inside=inside)).said()


def compiled(inside: bool) -> Values:
    """Compile twice, the second time with the caches of the first."""
    cache = str(WORK / f"cache-{time.monotonic_ns()}")
    env = {name: f"{cache}/{name.lower()}" for name in CACHES}
    first, later = (
        as_user(*srun(*gpu(), *work("compile"), inside=inside), env=env).said() for _ in range(2)
    )
    return {"first": first["first_5"], "later": later["first_5"], "steps": later["steps"]}


def imports(inside: bool) -> Values:
    return as_user(*srun(*gpu(), *work("import"), inside=inside)).said()


def wall(*words: str, edf: str = "torch") -> Callable[[bool], Values]:
    """Return a measure of the milliseconds that `srun WORDS true` takes."""

    def once(inside: bool) -> Values:
        done = as_user(*srun(*words, "true", inside=inside, edf=edf))
        if done.code:
            raise StepError(done.err[-800:])
        return {"ms": done.took_s * 1000}

    return once


def many(inside: bool) -> Values:
    """Return the milliseconds of 20 steps at once in one allocation."""
    step = " ".join(srun("--overlap", "--mem=0", "-n1", "true", inside=inside))
    script = f"for i in $(seq 20); do {step} || echo FAILED & done; wait"
    done = as_user("salloc", "-Q", "-n", str(os.cpu_count()), "bash", "-c", script)
    if done.code or "FAILED" in done.out:
        raise StepError(done.err[-800:])
    return {"ms": done.took_s * 1000}


def groups() -> Mapping[str, Group]:
    """Return what is measured, in the order of its worth; `same` is not a measure."""
    rate = {
        "matmul": ("matrix product, bf16 8192^3", "TFLOP/s"),
        "copy": ("copy on the device, 4 GiB", "GB/s"),
        "h2d": ("copy host to device, pinned 1 GiB", "GB/s"),
        "d2h": ("copy device to host, pinned 1 GiB", "GB/s"),
        "train": ("training, 4 DataLoader workers", "steps/s"),
    }
    compiling = {
        "first": ("torch.compile, first 5 steps, cold", "s"),
        "later": ("torch.compile, the same, cached", "s"),
        "steps": ("torch.compile, training", "steps/s"),
    }
    importing = {
        "first": ("import torch, first of a step", "s"),
        "second": ("import torch, second of the step", "s"),
    }
    found = {
        "core": Group(rate, core, int(os.environ.get("ROUNDS", "5"))),
        "compile": Group(compiling, compiled, 2, part=0.5),
        "import": Group(importing, imports, 5, part=0.5),
        "plain": Group({"ms": ("srun true, plain EDF", "ms")}, wall("-n1", edf="plain"), 20),
        "srun": Group({"ms": ("srun true, GPU and hook", "ms")}, wall("-n1", "--gpus=1"), 20),
    }
    for tasks in (4, 8) if SHORT else (16, 64):
        name = f"srun -n{tasks} true, GPU and hook"
        argv = ("-O", f"-n{tasks}", "--mem=2G", "--gpus=1")
        found[f"srun{tasks}"] = Group({"ms": (name, "ms")}, wall(*argv), 5)
    found["many"] = Group({"ms": ("20 steps at once", "ms")}, many, 5)
    return found


def same(report: Report) -> None:
    """Compare what native and contained tasks find of the GPUs, and whether NCCL works."""
    for name, options, what in (
        ("--gpus=1: GPUs, NVML, PyTorch", gpu(1), "see"),
        ("no GPU asked for", gpu(0), "see"),
        ("--gpus=0", (*gpu(0), "--gpus=0"), "see"),
        ("NCCL, one rank", gpu(1), "nccl"),
    ):
        native, inside = (as_user(*srun(*options, *work(what), inside=i)) for i in (False, True))
        compare(report, name, native, inside)
    script = f"{' '.join(work('hold', 'run'))} && echo get_server_list | nvidia-cuda-mps-control"
    if Path("/usr/bin/nvidia-cuda-mps-control").exists():
        done = as_user(*srun(*gpu(), "sh", "-c", script, inside=True, edf="mps"))
        lines = " ".join(done.out.split())
        if done.code or not lines.rpartition(" ")[2].isdigit():
            report.fail("MPS", f"exit code {done.code}: {lines} {done.err}")
        else:
            report.line(f"{'MPS, by the hook':34} | held: {lines}")
    else:
        report.line(f"{'MPS':34} | not here")


def compare(report: Report, name: str, native: Done, inside: Done) -> None:
    said = [done.out.strip().splitlines()[-1:] or [done.err.strip()] for done in (native, inside)]
    if (native.code, said[0]) == (inside.code, said[1]) and native.code == 0:
        report.line(f"{name:34} | the same: {said[0][0]}")
    else:
        codes = f"exit codes {native.code} and {inside.code}"
        report.fail(name, f"{codes}: native {said[0][0][-800:]}; inside {said[1][0][-800:]}")


def main() -> int:
    start.prepare()
    report = Report("numbers")
    report.line(f"machine   {start.versions()}")
    report.line(HEAD)
    wanted = os.environ.get("ROWS", "").split()
    known = groups()
    for name in ("core", "compile", "import", "same", *list(known)[3:]):
        if wanted and name not in wanted:
            continue
        if name == "same":
            same(report)
        else:
            known[name].measure(report)
    return report.end()


if __name__ == "__main__":
    main_of(main)
