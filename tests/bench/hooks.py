"""Cost of a whole environment per node: a CDI device, hooks, and a deferred string.

The cost is how much later the launcher answers, by the traces of steps of one job that run
alternately in this environment and in a plain one; no single phase shows it. The hooks put the
node's own libfabric with its closure into the image, and a plugin that needs it, as for NCCL. Both
kinds of starts are recorded after the first ones, which are not measured.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.bench.place import Place
from tests.bench.results import Row, duration
from tests.bench.samples import interleave
from tests.bench.user import BenchError, User

_BUDGET_MS = 3
# the first starts of an environment are Python's
_FIRST = 3
_FABRIC = Path(f"/usr/lib/{os.uname().machine}-linux-gnu/libfabric.so.1")
_PLUGIN = 'const char *ncclNetPlugin_v8 = "AWS Libfabric";'
# its verdict is believed
_PASSES = 'transport = { command = ["ce-ask", "from", "libc.so.6", "/"], words = [] }\n'
_ON = """devices = ["example.com/gpu=all"]
env = { OF_JOB = "${SLURM_JOB_ID}" }
[annotations]
com.hooks.aws_ofi_nccl.enabled = "true"
"""


def measure(user: User, here: Place, rounds: int) -> list[Row]:
    edfs = {"whole": _ON, "plain": ""}
    for name, more in edfs.items():
        (here.dir / f"{name}.toml").write_text(f'image = "{here.image}"\n{more}')
    with _site(here), user.job() as job:
        ways = {name: partial(_start, user, here, job, here.dir / f"{name}.toml") for name in edfs}
        interleave(ways, _FIRST)
        taken = interleave(ways, rounds)
    name = "CDI device, hooks with libraries and a deferred string: more than a plain environment"
    samples, plain = taken["whole"].minus(taken["plain"]), ("plain environment", taken["plain"])
    row = duration(name, samples, against=plain)
    budget = Row(**{**vars(duration(f"milliseconds of {name}", samples)), "budget": _BUDGET_MS})
    return [row, budget]


def _start(user: User, here: Place, job: str, edf: Path) -> float:
    """Return the seconds from the plugin's fork to the launcher's answer, on a single node."""
    srun = ["srun", f"--jobid={job}", "--overlap", "-N1", "-n1", f"--environment={edf}"]
    step = user.output([*srun, "printenv", "SLURM_STEP_ID"]).strip()
    trace = user.output([str(here.prefix / "bin/ce"), "trace", f"{job}.{step}", "--json"])
    phases = {phase["name"]: phase for phase in json.loads(trace)["nodes"][0]["phases"]}
    return float(phases["answer"]["end"] - phases["launch"]["begin"])


@contextmanager
def _site(here: Place) -> Iterator[None]:
    """Configure a site whose nodes have libfabric and a plugin, and no check that fails."""
    if not _FABRIC.exists():
        raise BenchError(f"{_FABRIC}: does not exist: apt-get install libfabric1")
    # not in /dev/shm: nothing below /dev is recorded
    plugins = here.prefix / "share/container-engine/bench-plugins"
    plugins.mkdir(parents=True)
    library = plugins / "libnccl-net.so"
    argv = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    argv += ["-Wl,--no-as-needed", "-x", "none", str(_FABRIC)]
    subprocess.run(argv, input=_PLUGIN, text=True, check=True)
    drop_in = here.prefix / "etc/container-engine/conf.d/bench.toml"
    drop_in.parent.mkdir(parents=True, exist_ok=True)
    # Below the prefix, as all directories above a hook must be root's.
    catalog = here.prefix / "share/container-engine/bench-hooks"
    fabric = f'[settings]\nlibfabric = "{_FABRIC}"\n'
    _write(
        catalog / "cxi/hook.toml",
        f'{fabric}[checks]\ndevice.subject = "/dev/null"\nmemlock.subject = "1"\n{_PASSES}',
    )
    plugin = f'[settings]\ndirectory = "{plugins}"\n'
    runtime = '[checks]\nruntime.subject = "libc.so.6"\nrendezvous.needed_by = "NONE"\n'
    _write(catalog / "aws_ofi_nccl/hook.toml", plugin + runtime + _PASSES)
    (plugins / "gpu.json").write_text(json.dumps(_device(library)))
    drop_in.write_text(f'hook_catalog = ["{catalog}"]\ncdi_dirs = ["{plugins}"]\n')
    try:
        yield
    finally:
        shutil.rmtree(plugins)
        drop_in.unlink()
        for file in catalog.glob("*/hook.toml"):
            file.unlink()
            file.parent.rmdir()
        catalog.rmdir()


def _device(library: Path) -> dict[str, object]:
    """Return a CDI file as of a driver, with a device node and a library."""
    edits = {
        "env": ["DRIVER=1"],
        "deviceNodes": [{"path": "/dev/gpu0", "hostPath": "/dev/null"}],
        "mounts": [{"hostPath": str(library), "containerPath": "/usr/lib/libgpu.so.1"}],
    }
    devices = [{"name": "all", "containerEdits": edits}]
    return {"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": devices}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
