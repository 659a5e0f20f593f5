"""Submit a function with the adapter of the page on the engine's API: IMAGE MOUNT…."""

import os
import platform
import sys

from submitit_engine import executor

from container_engine import api


def report() -> str:
    ident = platform.freedesktop_os_release()["ID"]
    return f"task {os.environ['SLURM_PROCID']} on {os.environ['SLURMD_NODENAME']} in {ident}"


environment = api.Environment(
    image=api.Image.file(sys.argv[1]), mounts=[api.Mount.bind(path) for path in sys.argv[2:]]
)
jobs = executor(environment, "log_test")
jobs.update_parameters(timeout_min=10, nodes=2, tasks_per_node=1)
print(*jobs.submit(report).results(), sep="\n")
