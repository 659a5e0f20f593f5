"""Compute the tasks' environment: the EDF overrides hooks, these the image, that the job. Pure."""

from __future__ import annotations

from container_engine.base.errors import LaunchError
from container_engine.base.variables import (
    MAX_VARIABLE,
    is_for_inside,
    is_of_slurm,
    is_read_outside,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from container_engine.node.node_plan import NodePlan

# A quarter of the usual stack limit of 8 MiB, less room for arguments and what Podman adds.
MAX_ENVIRONMENT = 2 * 1024 * 1024 - 128 * 1024
# Podman adds these to every container; they say nothing about this one.
_PODMANS_OWN = frozenset(["TERM", "HOSTNAME", "HOME", "container"])
_HOME_OF_ROOT = "/root"
# The shell of an entrypoint sets these for itself.
_SHELLS_OWN = frozenset(["PWD", "OLDPWD", "SHLVL", "_"])
# The image need not have the host's locales, and perl and R would warn in every task.
_HOST_LOCALE = ("LANG", "LANGUAGE", "LC_ALL")

# What ce-host reads; must match spank_plugin/common/held.h. The hook `slurm` sets CE_HOST_PATH.
OF_CONTAINER, OF_JOB, _OF_HOOK = "CE_OF_CONTAINER_", "CE_OF_JOB_", "CE_HOST_PATH"

# For each annotation that turns off a server of the step (PMIx, PMI2), the variables that lead to
# that server.
_SERVERS = {
    "com.hooks.pmix.enabled": (
        *("PMIX_NAMESPACE", "PMIX_RANK", "PMIX_HOSTNAME", "PMIX_VERSION", "PMIX_SECURITY_MODE"),
        *(f"PMIX_SERVER_URI{version}" for version in ("", 2, 21, 3, 4, 41, 5, 6)),
        *(f"PMIX_{name}_MODULE" for name in ("GDS", "PTL")),
        *(f"PMIX_DSTORE_{name}_BASE_PATH" for name in ("21", "ESH")),
        *("PMIX_BFROP_BUFFER_TYPE", "PMIX_SERVER_TMPDIR", "PMIX_SYSTEM_TMPDIR"),
    ),
    "com.hooks.pmi2.enabled": ("PMI_FD", "PMI_JOBID", "PMI_RANK", "PMI_SIZE", "PMI_PORT"),
}


def for_container(image: Mapping[str, str], edf: Mapping[str, str | None]) -> dict[str, str]:
    """Return the environment of the container itself, as hooks and entrypoint see it.

    Raise LaunchError if it is too large.
    """
    merged: dict[str, str | None] = {**image, **edf}
    given = {name: value for name, value in merged.items() if value is not None}
    total = sum(check_size(name, value) for name, value in given.items())
    if total > MAX_ENVIRONMENT:
        raise LaunchError(
            f"env: the variables of the image and of [env] have {total} bytes together, which is"
            f" too large: {MAX_ENVIRONMENT} are allowed",
            see="environment-too-large",
        )
    return given


def check_size(name: str, value: str) -> int:
    """Return the size of NAME=value in bytes.

    Raise LaunchError, with the name, if it is too large for execve, which would not name it.
    """
    size = len(f"{name}={value}".encode("utf-8", "surrogateescape"))
    if size > MAX_VARIABLE:
        raise LaunchError(
            f"env.{name}: has {size} bytes with its name; Linux allows {MAX_VARIABLE}",
            see="variable-too-large",
        )
    return size


def for_tasks(
    plan: NodePlan,
    edf: Mapping[str, str | None],
    given: Mapping[str, str],
    found: Mapping[str, str],
) -> dict[str, str | None]:
    """Return a task's changes to the environment that Slurm gave it; None removes a variable.

    `given` is the environment with which the container was started, `found` that of its first
    process: CDI devices, OCI hooks or the entrypoint have changed it since. Only an entrypoint can
    remove variables, or change those of `edf`, the EDF's and the hooks'.
    """
    made = {
        name: value
        for name, value in found.items()
        if given.get(name) != value and name not in _PODMANS_OWN | _SHELLS_OWN
    }
    if plan.entrypoint:
        made = {name: value for name, value in made.items() if not is_read_outside(name)}
    else:
        made = {name: value for name, value in made.items() if name not in edf}
    changes: dict[str, str | None] = dict.fromkeys(_HOST_LOCALE)
    changes.update(plan.image_env)
    changes.update(_about(plan))
    changes.update(edf)
    changes.update(made)
    if plan.entrypoint:
        changes.update(_removed(given, found))
    if _OF_HOOK in found:
        users = {entry["name"] for entry in plan.env}
        changes.update(_of_container(users, changes))
    return without_slurms(changes) | _turned_off(plan.annotations)


def _of_container(users: set[str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return what tells ce-host which values are not the user's, and stay in this container.

    `users` are the names of the user's variables; /root is never the user's home on the host. Raise
    LaunchError.
    """
    found = {
        f"{OF_CONTAINER}{name}": value
        for name, value in changes.items()
        if value is not None
        and is_for_inside(name)
        and (name not in users or (name, value) == ("HOME", _HOME_OF_ROOT))
    }
    for name, value in found.items():
        check_size(name, value)
    return found


def for_joined(
    plan: NodePlan,
    edf: Mapping[str, str | None],
    found: Mapping[str, str],
    workdir: str,
    node: Mapping[str, str],
) -> dict[str, str | None]:
    """Return a task's changes in a step that joins a container; ce-guard's answers have them, too.

    `found` is the environment of the container's first process. If its HOME is root's, so is the
    task's, unless `edf` sets HOME.
    """
    made = for_tasks(plan, edf, for_container(plan.image_env, edf), found)
    if found.get("HOME") == _HOME_OF_ROOT and "HOME" not in edf:
        made["HOME"] = _HOME_OF_ROOT
        if _OF_HOOK in found:
            made[f"{OF_CONTAINER}HOME"] = _HOME_OF_ROOT
    return {"PWD": workdir, "OLDPWD": None, **of_launchers(node), **made}


def of_launchers(node: Mapping[str, str]) -> dict[str, str | None]:
    """Return variables with which the mpirun of MPICH and Intel MPI works in a step of one node.

    Without them it calls Slurm's srun, which images lack, and waits forever. Values that the user
    has chosen stay; "slurm" is replaced, since Slurm itself may have set it.
    """
    if any(node.get(name) != "1" for name in ("SLURM_STEP_NUM_NODES", "SLURM_NNODES")):
        return {}
    launchers = ("HYDRA_LAUNCHER", "I_MPI_HYDRA_BOOTSTRAP")
    return {name: "fork" for name in launchers if node.get(name, "slurm") == "slurm"}


def home_of_tasks(
    image: Mapping[str, str], edf: Mapping[str, str | None], node: Mapping[str, str], own: str
) -> str:
    """Return the HOME that tasks have unless an entrypoint changes it, "" if the EDF removes it.

    `edf` are the variables of EDF and hooks, `own` is the home of the user database.
    """
    given: Sequence[Mapping[str, str | None]] = (edf, image, node)
    found = next((values for values in given if "HOME" in values), {"HOME": own})
    return found["HOME"] or ""


def directories(
    plan: NodePlan, edf: Mapping[str, str | None], node: Mapping[str, str], own: str
) -> list[str]:
    """Return the directories that the container has for its tasks: homes, WORKDIR and /tmp.

    `edf` are the variables of EDF and hooks, `own` is the home of the user database, where programs
    look if the EDF names no other. An image's WORKDIR need not be in its layers, and images without
    a distribution have no /tmp.
    """
    homes = [home_of_tasks(plan.image_env, edf, node, own), *([] if "HOME" in edf else [own])]
    return [*homes, plan.image_workdir, "/tmp"]


def missing_home(
    changes: Mapping[str, str | None], node: Mapping[str, str], own: str
) -> dict[str, str | None]:
    """Return HOME for tasks to which neither the job nor the container gives one.

    srun --export=NONE leaves it unset, and programs rely on it. Slurm's programs have it in any
    case.
    """
    if "HOME" in node:
        return {}
    if "HOME" not in changes:
        return {"HOME": own}
    return {f"{OF_JOB}HOME": own} if f"{OF_CONTAINER}HOME" in changes else {}


def _about(plan: NodePlan) -> dict[str, str | None]:
    """Return variables that identify this container; an outer container's values never remain."""
    digests = [image.digest for image in plan.images]
    return {
        "CE_ENVIRONMENT_NAME": plan.name or None,
        "CE_IMAGE": " + ".join(image.name for image in plan.images) or None,
        "CE_CONTAINER_NAME": plan.container_name or None,
        # of several images, only all digests together identify the content
        "CE_IMAGE_DIGEST": ("+".join(digests) if all(digests) else "") or None,
    }


def _removed(given: Mapping[str, str], found: Mapping[str, str]) -> dict[str, None]:
    """Return removals of the variables that the entrypoint unset.

    Names that are not identifiers are ignored: a shell drops those without being asked.
    """
    gone = (name for name in given if name not in found and name not in _PODMANS_OWN | _SHELLS_OWN)
    return dict.fromkeys(name for name in gone if name.isascii() and name.isidentifier())


def _turned_off(annotations: Mapping[str, str]) -> dict[str, None]:
    """Return removals of the variables that lead to servers which annotations turn off.

    Each process then runs alone, as it would without srun's --mpi.
    """
    names = [_SERVERS[key] for key in _SERVERS if annotations.get(key) == "false"]
    return dict.fromkeys(name for some in names for name in some)


def without_slurms(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: value for name, value in changes.items() if not is_of_slurm(name)}


def apply(base: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return the environment `base` with the changes; None removes a variable."""
    merged: dict[str, str | None] = {**base, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def parse_block(block: bytes) -> dict[str, str]:
    """Parse NUL-separated NAME=value, as in /proc/PID/environ; skip entries without a name."""
    pairs = (
        entry.decode("utf-8", "surrogateescape").partition("=") for entry in block.split(b"\0")
    )
    return {name: value for name, _equals, value in pairs if name}


def encode_records(
    changes: Mapping[str, str | None], per_task: Mapping[str, str] | None = None
) -> bytes:
    """Encode changes in the record format of spank_plugin/common/join.h.

    `per_task` maps variables that differ between the tasks of a node to the variables from which
    each task copies the value. What the job has and the container replaces is copied first. Raise
    LaunchError for a name or value that would be read as another record.
    """
    for name, value in (*changes.items(), *(per_task or {}).items()):
        if not name or "=" in name or "\0" in name or "\0" in (value or ""):
            raise LaunchError(
                f"env: not a valid name or value of a variable: {name!a}", see="edf-value"
            )
    replaced = [
        name.removeprefix(OF_CONTAINER) for name in changes if name.startswith(OF_CONTAINER)
    ]
    records: Sequence[str] = [
        *(f"{OF_JOB}{name}" for name in replaced),
        *(f"={OF_JOB}{name}={name}" for name in replaced),
        *(name if value is None else f"{name}={value}" for name, value in changes.items()),
        *(f"={name}={other}" for name, other in (per_task or {}).items()),
    ]
    return b"".join(record.encode("utf-8", "surrogateescape") + b"\0" for record in records)
