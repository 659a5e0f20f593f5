"""Cost of hooks per node, with the node's libfabric and a plugin put into the image.

The cost is how much later the launcher answers, by the traces of real steps that run alternately
with and without hooks; no single phase shows it. The libraries are the node's own libfabric with
its closure, and a plugin that needs it, as for NCCL. Both kinds of starts are remembered after the
first two.
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

_BUDGET_MS = 20
_FABRIC = Path(f"/usr/lib/{os.uname().machine}-linux-gnu/libfabric.so.1")
_PLUGIN = 'const char *ncclNetPlugin_v8 = "AWS Libfabric";'
_ON = '[annotations]\ncom.hooks.aws_ofi_nccl.enabled = "true"\n'


def measure(user: User, here: Place, rounds: int) -> list[Row]:
    ways = {}
    for name, more in (("with", _ON), ("without", "")):
        edf = here.dir / f"{name}-hooks.toml"
        edf.write_text(f'image = "{here.image}"\n{more}')
        ways[name] = partial(_start, user, here, edf)
    with _site(here):
        taken = interleave(ways, rounds)
    samples = taken["with"].minus(taken["without"])
    return [
        duration("hooks with libraries and pre-flight, per node", samples, budget=_BUDGET_MS),
    ]


def _start(user: User, here: Place, edf: Path) -> float:
    """Return the seconds from the plugin's fork to the launcher's answer, on a single node."""
    srun = ["srun", "-N1", "-n1", f"--environment={edf}", "printenv", "SLURM_JOB_ID"]
    # Warnings may be printed before or after the job id.
    [job] = [line for line in user.output(srun).splitlines() if line.isdecimal()]
    trace = user.output([str(here.prefix / "bin/ce"), "trace", job, "--json"])
    phases = {phase["name"]: phase for phase in json.loads(trace)["nodes"][0]["phases"]}
    return float(phases["answer"]["end"] - phases["launch"]["begin"])


@contextmanager
def _site(here: Place) -> Iterator[None]:
    """Configure a site whose nodes have libfabric and a plugin, and no check that fails."""
    if not _FABRIC.exists():
        raise BenchError(f"{_FABRIC}: does not exist: apt-get install libfabric1")
    # not in /dev/shm: nothing below /dev is remembered
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
        f'{fabric}[checks.device]\nkind = "device"\nsubject = "/dev/null"\n',
    )
    plugin = f'[settings]\ndirectory = "{plugins}"\n'
    runtime = '[checks.runtime]\nkind = "unversioned"\nsubject = "libc.so.6"\n'
    _write(catalog / "aws_ofi_nccl/hook.toml", plugin + runtime)
    drop_in.write_text(f'hook_catalog = ["{catalog}"]\n')
    try:
        yield
    finally:
        shutil.rmtree(plugins)
        drop_in.unlink()
        for file in catalog.glob("*/hook.toml"):
            file.unlink()
            file.parent.rmdir()
        catalog.rmdir()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
