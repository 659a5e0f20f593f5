"""Submit a function with submitit, as its README does: `submitit_job.py SRUN_ARGUMENT…`."""

import os
import platform
import sys

import submitit


def report() -> str:
    ident = platform.freedesktop_os_release()["ID"]
    return f"task {os.environ['SLURM_PROCID']} on {os.environ['SLURMD_NODENAME']} in {ident}"


executor = submitit.AutoExecutor(folder="log_test")
executor.update_parameters(
    timeout_min=10, nodes=2, tasks_per_node=1, slurm_srun_args=sys.argv[1:] or None
)
print(*executor.submit(report).results(), sep="\n")
