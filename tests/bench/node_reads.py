"""`python -m tests.bench.node_reads IMAGE COMMAND…`: count what nodes read of an image's file.

Each node of the running sandbox runs the command in a container of its own: as the first one that
uses the image on the node, so that nothing is recorded of what to read ahead; in the next job; and,
on the first node, as the first and the second step of a batch job, which share a mount. The figures
are those of `ce trace`: bytes that ce-image has read, whether or not they were in the page cache.
Prints a line of Markdown for each.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_FIGURES = ("bytes", "reads", "requests")


def _run(*argv: str) -> str:
    run = [str(_ROOT / "sandbox/run"), *argv]
    return subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout


def _reads(step: str) -> list[dict[str, Any]]:
    """Return the figures of each node of a step that has ended."""
    for _attempt in range(100):
        nodes = json.loads(_run("ce", "trace", step, "--json"))["nodes"]
        if all(node["end"] for node in nodes):
            return [node["image_reads"][0] for node in nodes]
        time.sleep(0.1)
    raise SystemExit(f"{step} has not ended")


def _job(count: int, step: list[str]) -> str:
    """Run a step on so many nodes; return the number of its job."""
    argv = ["srun", f"-N{count}", f"-n{count}", *step]
    return _number(_run(*argv))


def _number(said: str) -> str:
    [*_others, number] = re.findall(r"(?m)^job=(\d+)$", said)
    return str(number)


def _row(name: str, found: list[dict[str, Any]]) -> None:
    of_node = {key: sum(one[key] for one in found) / len(found) for key in _FIGURES}
    total = sum(one["bytes"] for one in found)
    cells = [f"{len(found)}", f"{of_node['bytes'] / 1e6:.1f}", f"{of_node['reads']:.0f}"]
    print(f"| {name} | {' | '.join([*cells, f'{total / 1e6:.1f}'])} |", flush=True)


def _forget() -> None:
    place = f"/var/tmp/ce-answers-{_run('id', '-u').strip()}/reads"
    shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    image, *command = sys.argv[1:]
    count = len(_run("sinfo", "-hNo", "%N").split())
    said = 'echo "job=$SLURM_JOB_ID"; ' + shlex.join(command)
    step = [f"--container-image={image}", "sh", "-c", said]
    _forget()
    for name in ("the first on the node", "the next job on the node"):
        _row(name, _reads(f"{_job(count, step)}.0"))
    script = f"#!/bin/sh\n# --environment\n{shlex.join(['srun', *step])}\n" * 2
    out = _run("mktemp").strip()
    batch = f"printf %s {shlex.quote(script)} | sbatch --wait -N1 -n1 -wn1 -o {out}"
    _forget()
    _run("sh", "-c", batch)
    job = _number(_run("cat", out))
    first, second = (_reads(f"{job}.{number}")[0] for number in (0, 1))
    _row("the first step of a batch job", [first])
    _row("its second step", [{key: second[key] - first[key] for key in _FIGURES}])
    return 0


if __name__ == "__main__":
    sys.exit(main())
