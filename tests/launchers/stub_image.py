"""An image whose programs have the names that scripts of MLPerf's submissions call.

`run_and_time.sh`, the program of such a submission, reports its task and writes into /results.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from ce_sandbox import packages
from ce_sandbox.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slurm.cluster import Cluster

WORKDIR = "/workspace"
_PACKAGES = "usr/lib/python3/dist-packages"
_ECHO = '#!/bin/sh\necho "stub: $(basename "$0") $*"\n'
_LOGGER = "from mlperf_logging import mllog\n\nmllogger = mllog.get_mllogger()\n"
_RUN = """\
#!/bin/bash
set -eu
. /etc/os-release
echo "task $SLURM_PROCID on $SLURMD_NODENAME in $ID as $(id -u)"
echo "$SLURM_PROCID of $SLURM_NTASKS" >"/results/task-$SLURM_PROCID"
"""
# Prints where a step runs that joins a container, and what `ray start` left there.
REPORT = '. /etc/os-release; echo "task 0 on $SLURMD_NODENAME in $ID"; cat /var/tmp/ray'
# `ray` as the script of NeMo-RL calls it. The real one cannot be used: `ray stop`, which each node
# calls first, ends Ray on the whole host, and both nodes are one host. A unit is a file that both
# see.
_RAY = """\
#!/bin/bash
case "$*" in
"start --head "*) echo started here >/var/tmp/ray && touch "$STUB_UNITS/$SLURMD_NODENAME" ;;
"start --address "*)
    echo started here >/var/tmp/ray && touch "$STUB_UNITS/$SLURMD_NODENAME"
    exec sleep infinity
    ;;
status) echo " 0.0/$(ls "$STUB_UNITS" | wc -l).0 worker_units" ;;
esac
"""
_FILES = {
    **{
        f"usr/bin/{name}": _ECHO
        for name in (
            *("all_reduce_perf_mpi", "alltoall_perf_mpi", "conda", "ibv_devinfo"),
            *("mlperf-sysjson.sh", "nvidia-smi", "pip"),
        )
    },
    "usr/bin/ray": _RAY,
    # for SkyPilot: records what it installs, in the container's own files
    "usr/bin/apt-get": '#!/bin/sh\necho "stub: apt-get $*" | tee -a /var/log/installed\n',
    "usr/bin/slurm2pytorch": '#!/bin/sh\nexec "$@"\n',
    "workspace/run_and_time.sh": _RUN,
    # enroot's way to keep an image's working directory
    "etc/rc": f'mkdir -p "{WORKDIR}" 2> /dev/null\ncd "{WORKDIR}" && unset OLDPWD || exit 1\n',
    "etc/environment": "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
    f"{_PACKAGES}/mlperf_common/__init__.py": "",
    f"{_PACKAGES}/mlperf_common/callbacks.py": _LOGGER,
    f"{_PACKAGES}/mlperf_common/mountcheck.py": "print('stub: mountcheck')\n",
    f"{_PACKAGES}/mlperf_logging/__init__.py": "",
    f"{_PACKAGES}/mlperf_logging/compliance_checker.py": "print('stub: checker')\n",
    f"{_PACKAGES}/mlperf_logger/__init__.py": _LOGGER,
    f"{_PACKAGES}/mlperf_logging/mllog.py": (
        "class constants:\n    CACHE_CLEAR = 'cache_clear'\n\n\nclass _Logger:\n"
        "    constants = constants\n\n    def event(self, key, value):\n"
        "        print('stub:', key, value)\n\n\n"
        "def get_mllogger():\n    return _Logger()\n"
    ),
}


def make(cluster: Cluster, target: Path) -> None:
    """Write the image, made of the demo image, what wheels are linked with, and these files."""
    tree = target.with_suffix(".tree")
    _run("unsquashfs", "-no-progress", "-dest", tree, cluster.image("demo"))
    packages.unpack_alone("libstdc++6", Layout(cluster.dir).cache / "packages", tree)
    for name, text in _FILES.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    (tree / "usr/bin/python").unlink(missing_ok=True)
    (tree / "usr/bin/python").symlink_to("python3")
    _run("mksquashfs", tree, target, "-all-root", "-quiet", "-no-progress", "-comp", "zstd")
    target.chmod(0o644)


def _run(*words: str | Path) -> None:
    subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True)
