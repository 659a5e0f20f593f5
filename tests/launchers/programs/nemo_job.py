"""Submit a script with NeMo-Run from a login node, as its guide of Slurm does: IMAGE MOUNT…."""

import sys

import nemo_run as run

executor = run.SlurmExecutor(
    account="",
    partition="sandbox",
    nodes=2,
    ntasks_per_node=1,
    time="00:10:00",
    container_image=sys.argv[1],
    container_mounts=sys.argv[2:],
    packager=run.Packager(),
    env_vars={"PYTHONUNBUFFERED": "1"},
    monitor_group_job=False,
)
script = run.Script(
    inline='. /etc/os-release; echo "task $SLURM_PROCID on $SLURMD_NODENAME in $ID"; pwd'
)
with run.Experiment("report") as experiment:
    experiment.add(script, executor=executor, name="report")
    experiment.run(detach=True)
