"""What hooks cost a node: the node's libfabric and a plugin put into the image, and looked at.

Taken from the traces of real steps: from the mounted image to the start of Podman. The libraries
are the node's own libfabric with its closure, and a plugin that needs it, as for NCCL.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.place import Place
from tests.bench.results import Row, duration
from tests.bench.samples import Samples
from tests.bench.user import BenchError, User

_BUDGET_MS = 20
_FABRIC = Path(f"/usr/lib/{os.uname().machine}-linux-gnu/libfabric.so.1")
_PLUGIN = 'const char *ncclNetPlugin_v8 = "AWS Libfabric";'
_ON = '[annotations]\ncom.hooks.aws_ofi_nccl.enabled = "true"\n'


def measure(user: User, here: Place, rounds: int) -> list[Row]:
    edf = here.dir / "hooks.toml"
    edf.write_text(f'image = "{here.image}"\n{_ON}')
    srun = ["srun", "-N1", "-n1", f"--environment={edf}", "printenv", "SLURM_JOB_ID"]
    with _site(here):
        taken = [_phase(user, here, user.output(srun)) for _round in range(rounds + 1)]
    # the first one has met cold caches
    samples = Samples(tuple(taken[1:]))
    return [
        duration("hooks with libraries and pre-flight, per node", samples, budget=_BUDGET_MS),
    ]


def _phase(user: User, here: Place, said: str) -> float:
    job = said.rsplit(maxsplit=1)[-1]
    trace = user.output([str(here.prefix / "bin/ce"), "trace", job, "--json"])
    for phase in json.loads(trace)[0]["phases"]:
        if phase["name"] == "hooks":
            return float(phase["end"] - phase["begin"])
    raise BenchError(f"the trace of job {job} has no hooks")


@contextmanager
def _site(here: Place) -> Iterator[None]:
    """A site whose nodes have libfabric and a plugin, and no check that fails."""
    if not _FABRIC.exists():
        raise BenchError(f"{_FABRIC}: does not exist: apt-get install libfabric1")
    plugins = here.dir / "plugins"
    plugins.mkdir()
    library = plugins / "libnccl-net.so"
    argv = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    argv += ["-Wl,--no-as-needed", "-x", "none", str(_FABRIC)]
    subprocess.run(argv, input=_PLUGIN, text=True, check=True)
    drop_in = here.prefix / "etc/container-engine/conf.d/bench.toml"
    drop_in.parent.mkdir(parents=True, exist_ok=True)
    # beside the prefix: all above a hook must be root's
    catalog = here.prefix / "share/container-engine/bench-hooks"
    _write(catalog / "cxi/hook.toml", f'[settings]\nlibfabric = "{_FABRIC}"\n')
    _write(catalog / "aws_ofi_nccl/hook.toml", f'[settings]\ndirectory = "{plugins}"\n')
    drop_in.write_text(f'hook_catalog = ["{catalog}"]\n')
    try:
        yield
    finally:
        drop_in.unlink()
        for file in catalog.glob("*/hook.toml"):
            file.unlink()
            file.parent.rmdir()
        catalog.rmdir()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
