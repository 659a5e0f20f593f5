"""Tell variables of Slurm and of the engine from others, whatever an image says. Pure."""

from container_engine.base.loader_env import chooses_code

_SLURMS = ("SLURM_", "SLURMD_", "PMI_", "PMI2_", "PMIX_", "PALS_")
# settings for the PMIx library of the image, which Slurm does not set
_OF_LIBRARY = "PMIX_MCA_"
# the same for `ce-init --changes` (spank_plugin/programs/init.c)
WORDS_OF_SLURMS = (f"+{_OF_LIBRARY}", *_SLURMS)
# What the engine and Slurm's commands read, wherever they are called: also in a container, from
# which the hook `slurm` leads out. The options of a job have names with and without SLURM_ before.
_READ = (
    *("CE_", "EDF_", "PYXIS_", "ENROOT_", "SPANK_", "SLURM", "_SLURM", "SACCT_", "SALLOC_"),
    *("SATTACH_", "SBATCH_", "SBCAST_", "SCANCEL_", "SCONTROL_", "SCRONTAB_", "SDIAG_", "SINFO_"),
    *("SPRIO_", "SQUEUE_", "SREPORT_", "SRUN_", "SSHARE_", "STRIGGER_"),
)
_READ_WHOLE = ("CONTAINERS_REGISTRIES_CONF", "CONTAINER_HOST", "REGISTRY_AUTH_FILE", "SCRATCH")

# An image may decide these for its own programs, but not for Slurm's, which are the host's, nor for
# the steps that those start: where a user's files, programs of the host and other hosts are found.
# Beginnings of NAME=.
_LEADING = (
    *(
        "HOME=",
        "PATH=",
        "USER=",
        "LOGNAME=",
        "SHELL=",
        "TMPDIR=",
        "XDG_",
        "DOCKER_CONFIG=",
        "TZDIR=",
    ),
    *("HTTP_PROXY=", "HTTPS_PROXY=", "ALL_PROXY=", "NO_PROXY=", "http_proxy=", "https_proxy="),
    *("all_proxy=", "no_proxy=", "SSL_CERT_", "HOSTALIASES=", "LOCALDOMAIN=", "RES_OPTIONS="),
    "RESOLV_",
)


def is_of_slurm(name: str) -> bool:
    return name.startswith(_SLURMS) and not name.startswith(_OF_LIBRARY)


def is_read_outside(name: str) -> bool:
    """Check whether the variable decides what the engine or Slurm's commands do.

    The user sets such a variable, or an environment, and never an image.
    """
    return name.startswith(_READ) or name in _READ_WHOLE or is_of_slurm(name)


def is_for_inside(name: str) -> bool:
    """Check whether an image's value of this variable is for programs of the image alone."""
    return chooses_code(name) or f"{name}=".startswith(_LEADING)
