"""Run functions on workers of dask-jobqueue: `dask_job.py PYTHON`, a command that has srun."""

import platform
import sys

from dask.distributed import Client
from dask_jobqueue import SLURMCluster


def report(number: int) -> str:
    import os

    ident = platform.freedesktop_os_release()["ID"]
    return f"task {number} on {os.environ['SLURMD_NODENAME']} in {ident}"


with SLURMCluster(
    queue="sandbox",
    cores=1,
    memory="400MB",
    processes=1,
    walltime="00:10:00",
    python=sys.argv[1],
    job_extra_directives=["--nodes=1"],
    scheduler_options={"host": "127.0.0.1", "dashboard": False},
) as cluster:
    cluster.scale(jobs=2)
    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        for number, line in enumerate(client.run(report, 0).values()):
            print(line.replace("task 0", f"task {number}"))
