"""Run functions with Parsl on blocks of Slurm: `parsl_job.py SRUN_OPTIONS`."""

import sys
from pathlib import Path

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SrunLauncher
from parsl.providers import SlurmProvider


def report(number: int) -> str:
    import os
    import platform
    import time

    time.sleep(2)  # so that a worker on each node has one of the functions
    ident = platform.freedesktop_os_release()["ID"]
    return f"task {number} on {os.environ['SLURMD_NODENAME']} in {ident}"


provider = SlurmProvider(
    partition="sandbox",
    nodes_per_block=2,
    init_blocks=1,
    max_blocks=1,
    walltime="00:10:00",
    exclusive=False,
    launcher=SrunLauncher(overrides=sys.argv[1]),
)
executor = HighThroughputExecutor(
    label="containers",
    address="127.0.0.1",
    max_workers_per_node=1,
    provider=provider,
    worker_logdir_root=str(Path.cwd()),
)
with parsl.load(Config(executors=[executor], strategy="none")):
    futures = [parsl.python_app(report)(number) for number in range(6)]
    for future in futures:
        print(future.result())
