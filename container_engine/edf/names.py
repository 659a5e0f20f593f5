"""Names that mean something by themselves: the engine's, JOB.STEP, image files, other tools'.

Imports nothing, so that nodes start quickly.
"""

# node/node_plan.py repeats the second, because a launch must not wait for this import;
# a test compares them.
CONTAINER_NAME, CONTAINER_SAVE = "com.ce.container_name", "com.ce.container_save"
ROOT_REMAP, UNSHARE = "com.ce.root_remap", "com.ce.unshare"


def is_step(name: str) -> bool:
    """Check whether a container's name is JOB.STEP, that of a step that gave it no name."""
    job, _dot, step = name.partition(".")
    return job.isdigit() and step.isdigit()


SQUASHFS_SUFFIXES = (".sqsh", ".squashfs", ".sqfs", ".sif")


def lock_of(file: str) -> str:
    """Return the path of the lock of an environment's file."""
    return file.removesuffix(".toml") + ".lock"


# What a virtual environment, and one of conda, has at its top.
VENV_MARKS = {"virtual": "pyvenv.cfg", "conda": "conda-meta"}


def looks_like_file(text: str) -> bool:
    """Check whether `text` may be meant as a file, though it does not begin as a path does."""
    return text.endswith(SQUASHFS_SUFFIXES) and not text.startswith(
        ("docker://", "oras://", "/", ".")
    )


# Annotations below `com.pyxis.` that have the same effect here as in Pyxis.
PYXIS = ("entrypoint_log", "pytorch_remap_vars")

# For a key of an EDF those of container tools and job launchers that mean it but are not similar.
_MEANING = {
    "annotations.com": "com",
    "annotations.com.hooks": "hooks",
    "base_environment": "base extends inherit inherits",
    "env": "environment variables",
    "image": "container_image from",
    "mounts": "bind binds container_mounts volume volumes",
    "workdir": "container_workdir cwd working_dir",
    "writable": "container_writable",
}
FOREIGN_KEYS = {name: key for key, names in _MEANING.items() for name in names.split()}

_OWN = "com.ce.unshare below [annotations] names what a container has for itself"
# What to do instead, and the keys of other tools for which an EDF has no key.
_REMEDIES = {
    "install packages in a Dockerfile, with ce build": "apt packages pip",
    "give the command to srun or ce run": "args cmd command",
    "ce build builds an image from a Dockerfile": "build dockerfile",
    "resources belong to the job: srun --cpus-per-task": "cpus",
    "each srun of a job starts one service": "depends_on services",
    "write a line for each variable below [env]": "env_file",
    "the container has the host's network: every port is open as it is": "expose ports",
    'write devices = ["nvidia.com/gpu=all"]': "gpu gpus",
    "nothing watches a container; look at it from the job script": "healthcheck",
    "the container has the host's name and network": "hostname",
    f"the container has the host's, as if ipc were host; {_OWN}": "ipc",
    "remove it; names below [annotations] are for hooks": "labels",
    "resources belong to the job: srun --mem": "mem memory",
    "the container has the host's network": "network network_mode networks",
    f"the container has the host's, as if pid were host; {_OWN}": "pid",
    "a container never has more rights than you": "privileged",
    "a container ends with its step; sbatch --requeue repeats a job": "restart",
    "lines that run once per node before the tasks are startup = [...]": "run script setup",
    'mount the file that has it, read-only: mounts = ["FILE:FILE:ro"]': "secrets",
    "/dev/shm is the host's": "shm_size",
    "you are yourself in the container; com.ce.root_remap below [annotations] shows root": "user",
}
INSTEAD = {name: remedy for remedy, names in _REMEDIES.items() for name in names.split()}

# How other tools spell the flags of a mount.
FOREIGN_FLAGS: dict[str, str] = {"r": "ro", "read-only": "ro", "readonly": "ro", "w": "rw"}

TILDE_HINT = "'~' is not expanded, write ${HOME}"
WINDOWS = "a path of Windows"
WINDOWS_HINT = "the source is a path on the cluster, for example ${HOME}/data"
