"""Names that users misspell, misplace or know from other tools."""

from __future__ import annotations

# Annotations below `com.pyxis.` that have the same effect here as in Pyxis.
PYXIS = ("entrypoint_log", "pytorch_remap_vars")

# Keys of container tools and job launchers that mean a key of an EDF but are not similar to it.
FOREIGN_KEYS: dict[str, str] = {
    "base": "base_environment",
    "bind": "mounts",
    "binds": "mounts",
    "com": "annotations.com",
    "container_image": "image",
    "container_mounts": "mounts",
    "container_workdir": "workdir",
    "container_writable": "writable",
    "cwd": "workdir",
    "environment": "env",
    "extends": "base_environment",
    "from": "image",
    "hooks": "annotations.com.hooks",
    "inherit": "base_environment",
    "inherits": "base_environment",
    "variables": "env",
    "volume": "mounts",
    "volumes": "mounts",
    "working_dir": "workdir",
}

_OWN = "com.ce.unshare below [annotations] names what a container has for itself"
# Keys of other tools for which an EDF has no key, and what to do instead.
INSTEAD: dict[str, str] = {
    "apt": "install packages in a Dockerfile, with ce build",
    "args": "give the command to srun or ce run",
    "build": "ce build builds an image from a Dockerfile",
    "cmd": "give the command to srun or ce run",
    "command": "give the command to srun or ce run",
    "cpus": "resources belong to the job: srun --cpus-per-task",
    "depends_on": "each srun of a job starts one service",
    "dockerfile": "ce build builds an image from a Dockerfile",
    "env_file": "write a line for each variable below [env]",
    "expose": "the container has the host's network: every port is open as it is",
    "gpu": 'write devices = ["nvidia.com/gpu=all"]',
    "gpus": 'write devices = ["nvidia.com/gpu=all"]',
    "healthcheck": "nothing watches a container; look at it from the job script",
    "hostname": "the container has the host's name and network",
    "ipc": f"the container has the host's, as if ipc were host; {_OWN}",
    "labels": "remove it; names below [annotations] are for hooks",
    "mem": "resources belong to the job: srun --mem",
    "memory": "resources belong to the job: srun --mem",
    "network": "the container has the host's network",
    "network_mode": "the container has the host's network",
    "networks": "the container has the host's network",
    "packages": "install packages in a Dockerfile, with ce build",
    "pip": "install packages in a Dockerfile, with ce build",
    "pid": f"the container has the host's, as if pid were host; {_OWN}",
    "ports": "the container has the host's network: every port is open as it is",
    "privileged": "a container never has more rights than you",
    "restart": "a container ends with its step; sbatch --requeue repeats a job",
    "run": "lines that run once per node before the tasks are startup = [...]",
    "script": "lines that run once per node before the tasks are startup = [...]",
    "services": "each srun of a job starts one service",
    "setup": "lines that run once per node before the tasks are startup = [...]",
    "secrets": 'mount the file that has it, read-only: mounts = ["FILE:FILE:ro"]',
    "shm_size": "/dev/shm is the host's",
    "user": "you are yourself in the container; com.ce.root_remap below [annotations] shows root",
}

# How other tools spell the flags of a mount.
FOREIGN_FLAGS: dict[str, str] = {"r": "ro", "read-only": "ro", "readonly": "ro", "w": "rw"}

WINDOWS = "a path of Windows"
WINDOWS_HINT = "the source is a path on the cluster, for example ${HOME}/data"
