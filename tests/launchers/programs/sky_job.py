"""Let SkyPilot look for pyxis and start a cluster of two nodes: `sky_job.py IMAGE DIRECTORY`.

Its commands for the login node run here, and not by ssh.
"""

import shutil
import subprocess
import sys
from typing import Any

from sky.adaptors import slurm
from sky.provision import common
from sky.provision.slurm import instance
from sky.provision.slurm import utils as slurm_utils
from sky.utils import command_runner

IMAGE, DIRECTORY = sys.argv[1:]
NAME = "mine-1234"


class Here(command_runner.LocalProcessCommandRunner):  # type: ignore[misc]
    """A login node that is this host."""

    def rsync(self, source: str, target: str, **_options: Any) -> None:  # noqa: ANN401  # SkyPilot's
        shutil.copy(source, target)

    def get_remote_home_dir(self) -> str:
        return DIRECTORY


client = slurm.SlurmClient(is_inside_slurm_cluster=True)
print("pyxis", client.check_pyxis_enabled())
instance._make_slurm_client = lambda _config: client
instance._make_login_node_runner = lambda _config: Here()
slurm_utils.get_proctrack_type = lambda _cluster: client.get_proctrack_type()
slurm_utils.get_partition_info = lambda _cluster, name: {
    one.name: one for one in client.get_partitions_info()
}[name]
provider = {
    "cluster": "sandbox",
    "partition": "sandbox",
    "provision_timeout": 60,
    "sky_base_dir": DIRECTORY,
}
node = {"cpus": 1, "memory": 0, "image_id": IMAGE, "sbatch_options": {"time": "3"}}
record = instance._create_virtual_instance(
    "sandbox", "mine", NAME, common.ProvisionConfig(provider, {}, {}, node, 2, {}, False, None)
)
print("instances", *record.created_instance_ids)
(job,) = client.query_jobs(NAME, ["running"])
words = instance._build_pyxis_args(NAME)
report = (
    '. /etc/os-release; echo "task $SLURM_PROCID on $SLURMD_NODENAME in $ID as $(id -u)";'
    " cat /var/log/installed"
)
step = f"srun --overlap --jobid={job} -N2 -n2 {words} bash -c '{report}'"
subprocess.run(step, shell=True, check=True)
export = (
    f"set -e; name=$(enroot list | grep ^pyxis_); enroot export -f -o {DIRECTORY}/kept.sqsh $name"
)
subprocess.run(
    ["srun", "--overlap", f"--jobid={job}", "-N1", "-n1", "bash", "-c", export], check=True
)
client.cancel_jobs_by_name(NAME)
