"""Tell which variables choose code and which are Slurm's, and what an expansion stands for."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# The variables that choose code for a program to load; ce-start hides them from Python. Its option
# `-I` is not enough: PYTHONEXECUTABLE and __PYVENV_LAUNCHER__ still choose the standard library,
# GCONV_PATH the modules with which glibc converts text, and OPENSSL_CONF what hashlib loads. They
# belong to the job: environments may expand them and tasks may need them. The programs that the
# engine itself runs must not get them. Beginnings of NAME=; must match spank_plugin/common/held.c
CHOOSING_CODE = (
    *("LD_", "GCONV_PATH=", "GETCONF_DIR=", "GLIBC_TUNABLES=", "LOCPATH=", "MALLOC_", "NLSPATH="),
    *("OPENSSL_", "PYTHON", "__PYVENV_LAUNCHER__=", "BASHOPTS=", "BASH_ENV=", "BASH_FUNC_"),
    *("ENV=", "SHELLOPTS=", "ZDOTDIR=", "CLASSPATH=", "JAVA_TOOL_OPTIONS=", "JDK_JAVA_OPTIONS="),
    *("_JAVA_OPTIONS=", "LUA_", "NODE_OPTIONS=", "NODE_PATH=", "PERL5", "PERLLIB=", "RUBYLIB="),
    *("RUBYOPT=", "TCLLIBPATH="),
)
HELD = "CE_HELD_"
# the PATH of the programs that the engine runs on a node, such as Podman and crun
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# the directory below libexec/container-engine with the programs that a bundle brings, such as crun
BROUGHT = "programs"
# the longest NAME=value in bytes: the kernel's MAX_ARG_STRLEN less the NUL
MAX_VARIABLE = 131071


def take_back() -> None:
    """Rename the variables that ce-start has set aside back to their own names, in os.environ only.

    The environment of the C library must not have them: OpenSSL reads its variables late, on first
    use.
    """
    held = [name for name in os.environ if name.startswith(HELD)]
    for name, own in ((name, name.removeprefix(HELD)) for name in held):
        if chooses_code(own):
            os.environ[own] = os.environ.pop(name)
            os.unsetenv(own)


def chooses_code(name: str) -> bool:
    """Check whether this variable decides what code a program loads, of the host or of an image."""
    return f"{name}=".startswith(CHOOSING_CODE)


def without_loader(env: "Mapping[str, str]") -> dict[str, str]:
    """Return `env` without these variables: a user's library could break a system program."""
    return {name: value for name, value in env.items() if not chooses_code(name)}


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
_OF_USER = ("HOME", "USER", "LOGNAME")
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


def for_site_program(env: "Mapping[str, str]") -> dict[str, str]:
    """Return what a site's program gets of a step's variables: Slurm's, and who the user is."""
    own = {k: v for k, v in env.items() if k.startswith("SLURM") or k in _OF_USER}
    return {**own, "PATH": PATH}


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


VALUE, WORD, NOTHING, MISSING = "value", "word", "nothing", "missing"

# slurmstepd sets these for each task; until then they have the values of srun's own environment.
OF_TASKS = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS", "SLURM_TASK_PID")
TOO_EARLY = (
    "Slurm sets the variable for each task, after the container has started: use it in the task"
    " itself"
)


def replacement_kind(operator: str, value: str | None) -> str:
    """Return what takes the place of the expansion: VALUE, WORD or NOTHING; else MISSING.

    MISSING is an error: the variable is unset (`value` is None) and there is no word to use.
    """
    # the colon of an operator makes an empty value count as unset
    present = bool(value) if operator.startswith(":") else value is not None
    kind = operator[-1:]
    if kind == "+":
        return WORD if present else NOTHING
    if present:
        return VALUE
    return WORD if kind == "-" else MISSING
