"""Submit a script with the adapter of the page on the engine's API: IMAGE MOUNT…."""

import sys

import nemo_run as run
from nemo_engine import executor

from container_engine import api

environment = api.Environment(
    image=api.Image.file(sys.argv[1]), mounts=[api.Mount.bind(path) for path in sys.argv[2:]]
)
script = run.Script(
    inline='. /etc/os-release; echo "task $SLURM_PROCID on $SLURMD_NODENAME in $ID"'
)
with run.Experiment("report") as experiment:
    slurm = executor(
        environment,
        "environment.toml",
        account="",
        partition="sandbox",
        nodes=2,
        ntasks_per_node=1,
        time="00:10:00",
        monitor_group_job=False,
    )
    experiment.add(script, executor=slurm, name="report")
    experiment.run(detach=True)
