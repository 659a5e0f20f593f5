"""Look at the parts of a plan that only this node knows: its variables, its files, its devices.

A deferred string is a list whose items are strings or ``{"var", "op", "word"}`` (see
``container_engine.plan.model``); it is resolved here with the node's own environment.
"""

from __future__ import annotations

import os
import stat

from container_engine.base.errors import LaunchError, UserError
from container_engine.base.mounts import excess, is_reserved
from container_engine.base.variables import (
    MISSING,
    OF_TASKS,
    TOO_EARLY,
    VALUE,
    WORD,
    replacement_kind,
)
from container_engine.node.container.description import NodeMount, Parts
from container_engine.node.node_plan import Frozen, may_apply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import EnvEntry, Text, Variable

_SQUASHFS_MAGIC = b"hsqs"
_SUPERBLOCK_SIZE = 96
_OF_KERNEL = ("/proc/", "/sys/")
_DENIED = "Permission denied"
_ABSENT = "does not exist"
_FORBIDDEN = "only what you may read yourself can be mounted: ask its owner"
_TORN = r"on the command line a comma separates mounts: one inside a path is written '\,'"
_OF_COMMAND_LINE = ("--container-mounts", "PYXIS_CONTAINER_MOUNTS")
# what an environment names on a host, as messages call it, and the code of what is missing
SOURCE, DEVICE = "mount source", "device"
_SEE = {SOURCE: "mount-source-missing", DEVICE: "device-missing"}
# how the origin of values from the site's configuration begins
_OF_SITE = "site: "


# slurmstepd or one of its plugins sets these for each task, after the container has started.
_OF_TASKS = ("CUDA_", "ROCR_", "GPU_", "ZE_")


class NodeDevice(Frozen):
    """A device of the plan, by its path or, if it is a `cdi` device, by its CDI name."""

    name: str
    cdi: bool
    origin: str

    @property
    def hint(self) -> str | None:
        """The remedy if it is missing and the site's configuration asks for it, else None."""
        if not self.origin.startswith(_OF_SITE):
            return None
        return "the site gives it to every container: the administrator may want devices_if_there"


class Resolved(Frozen):
    """The parts of a plan with deferred strings, as they are on this node.

    Tasks begin in `workdir`. `env` are the EDF's variables; None removes a variable, whatever its
    source.
    """

    workdir: str
    env: Mapping[str, str | None]
    mounts: Sequence[NodeMount]
    devices: Sequence[NodeDevice]


def resolved(plan: NodePlan, node: Mapping[str, str]) -> Resolved:
    """Resolve the deferred strings once for all that a start does. Raise LaunchError."""
    return Resolved(
        workdir=resolve(plan.workdir, node, plan.workdir_from),
        env=edf_settings(plan.env, node),
        mounts=[
            NodeMount(
                one["kind"],
                resolve(one["source"], node, one["from"]),
                # the submit host could not check a deferred one; normalized, it stays below /
                os.path.normpath("/" + resolve(one["target"], node, one["from"]).lstrip("/")),
                one["options"],
                one["from"],
            )
            for one in plan.mounts
        ],
        devices=[
            NodeDevice(resolve(one["name"], node, one["from"]), one["cdi"], one["from"])
            for one in plan.devices
        ],
    )


def edf_settings(entries: Sequence[EnvEntry], node: Mapping[str, str]) -> dict[str, str | None]:
    """Return the EDF's [env] with literal values; None removes a variable, whatever its source.

    Raise LaunchError if a deferred value cannot be resolved.
    """
    return {
        entry["name"]: None
        if entry["value"] is None
        else resolve(entry["value"], node, entry["from"])
        for entry in entries
    }


def resolve(text: Text, environment: Mapping[str, str], where: str) -> str:
    """Return the literal text of a plan's string on this node.

    Raise LaunchError, with the string's origin `where`, if a required variable is not set.
    """
    if isinstance(text, str):
        return text
    return "".join(
        part if isinstance(part, str) else _variable(part, environment, where) for part in text
    )


def _variable(part: Variable, environment: Mapping[str, str], where: str) -> str:
    name, operator = part["var"], part["op"]
    value = environment.get(name)
    kind = replacement_kind(operator, value)
    if kind == WORD:
        return resolve(part["word"], environment, where)
    if kind != MISSING:
        return value or "" if kind == VALUE else ""
    reason = resolve(part["word"], environment, where) if operator.endswith("?") else ""
    message = f"${{{name}}}: {reason or _why_undefined(name)}"
    raise LaunchError(message, see="variable-on-node", where=where)


def _why_undefined(name: str) -> str:
    if name.startswith(_OF_TASKS) or name in OF_TASKS:
        return TOO_EARLY
    return "the variable is not defined on this node either"


def parts_of(
    plan: NodePlan, node: Mapping[str, str], unmet: list[LaunchError]
) -> tuple[Resolved, Parts]:
    """Return the plan as it is on this node, and its container without hooks.

    Add an error to `unmet` for each mount and device that the node lacks. Raise LaunchError for an
    image that it lacks.
    """
    here = resolved(plan, node)
    for path in plan.image_paths:
        check_image(path)
    return here, Parts(
        # being root inside is an option of the site; outside it is the same user
        uid=0 if plan.root_remap else os.getuid(),
        gid=0 if plan.root_remap else os.getgid(),
        writable=plan.writable,
        entrypoint=plan.entrypoint,
        workdir=plan.image_workdir,
        mounts=usable_mounts(here.mounts, unmet),
        devices=usable_devices(here.devices, plan.allowed_devices, unmet),
        annotations=plan.annotations,
        unshared=plan.unshare,
        umask=_umask(node),
        tmpfs_size=plan.tmpfs_size,
        limits=limits(plan),
        by_podman=plan.by_podman,
        # a recorded start, for which these variables would differ, is never Podman's
        name=_name(node) if plan.by_podman else "",
    )


# the factors of a size's units
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# from this Linux on, the kernel counts processes for each user namespace
_COUNTS_PROCESSES = (5, 14)


def limits(plan: NodePlan) -> tuple[int, int, int] | None:
    """Return the limits of the container: bytes, processes, milliseconds; None without any.

    Raise LaunchError for one that this node cannot keep.
    """
    memory, pids, time_s = plan.memory_limit, plan.pids_limit, plan.time_limit_s
    if not (memory or pids or time_s):
        return None
    if "pid" not in plan.unshare:
        raise LaunchError("the plan has limits, but no processes of its own", see="plan-damaged")
    if pids and os.getuid() == 0:
        message = "the kernel does not limit the processes of root"
        raise LaunchError(message, see="limit-not-kept", where="com.ce.pids_limit")
    release = os.uname().release
    version = tuple(int(one) for one in release.split("-")[0].split(".")[:2])
    if pids and version < _COUNTS_PROCESSES:
        message = f"Linux {release} counts a user's processes on the whole node: it needs 5.14"
        raise LaunchError(message, see="limit-not-kept", where="com.ce.pids_limit")
    unit = memory[-1:].lower()
    size = int(memory.rstrip("kmgtKMGT") or 0) * _UNITS.get(unit, 1)
    return size, pids, int(time_s * 1000)


def _name(node: Mapping[str, str]) -> str:
    """Return JOB.STEP, by which Podman knows the container of a step; "" outside of steps."""
    job, step = (node.get(f"SLURM_{kind}_ID", "") for kind in ("JOB", "STEP"))
    return f"{job}.{step}" if job.isdigit() and step.isdigit() else ""


def may_have_hooks(plan: NodePlan, here: Resolved, node: Mapping[str, str]) -> bool:
    """Check cheaply whether hooks or CDI devices may change the container on this node."""
    if plan.hooks_dirs or plan.devices_if_there or any(one.cdi for one in here.devices):
        return True
    return any(may_apply(hook, node) for hook in plan.hooks)


def _umask(node: Mapping[str, str]) -> int:
    """Return this process's umask, the user's.

    In a step it comes from SLURM_UMASK (spank_plugin/plugin_user/step_processes.c): for the answer
    of a start (recorded_start.py), that variable is asked for.
    """
    node.get("SLURM_UMASK")
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# Images that this process has found complete, with their state at that time: when a start is
# decided a second time (recorded_start.py), no image is opened on a file server again.
_whole: dict[str, tuple[int, ...]] = {}


def _state(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def check_image(path: str) -> None:
    """Raise LaunchError unless the file is a complete SquashFS image, or a SIF file with one.

    With a damaged one, tasks would only get ENOTCONN.
    """
    try:
        if path in _whole and _whole[path] == _state(os.stat(path)):
            return
        with open(path, "rb", buffering=0) as file:
            superblock = file.read(_SUPERBLOCK_SIZE) or b""
            found = os.fstat(file.fileno())
            size = found.st_size
            if not superblock.startswith(_SQUASHFS_MAGIC):
                superblock, size = _within(file.fileno(), path)
    except OSError as error:
        raise LaunchError(
            f"{error.strerror}", see="image-not-on-node", kind="image", name=path
        ) from None
    if len(superblock) < _SUPERBLOCK_SIZE or not superblock.startswith(_SQUASHFS_MAGIC):
        raise LaunchError(
            "is not a SquashFS file", see="image-not-squashfs", kind="image", name=path
        )
    used = int.from_bytes(superblock[40:48], "little")
    if used > size:
        raise LaunchError(
            f"is cut short: it has {size} bytes and should have {used}",
            see="image-damaged",
            kind="image",
            name=path,
        )
    _whole[path] = _state(found)


def _within(file: int, path: str) -> tuple[bytes, int]:
    """Return the superblock in a SIF file, and the size of its part. Raise OSError, LaunchError."""
    # only where an image is not a SquashFS file
    from container_engine.base import sif
    from container_engine.oci.architecture import ARCHITECTURES

    try:
        place = sif.place(file, path)
    except UserError as error:
        raise LaunchError(
            error.reason, error.hint, see=error.see, kind="image", name=path
        ) from None
    here = ARCHITECTURES.get(machine := os.uname().machine, machine)
    if place.architecture not in {"", here}:
        raise LaunchError(
            f"made for {place.architecture}, this node is {here}",
            see="image-architecture",
            kind="image",
            name=path,
        )
    return os.pread(file, _SUPERBLOCK_SIZE, place.start), place.size


def check_site_programs(podman: str, runtime: str) -> None:
    """Check the paths of the site's Podman and runtime, "" for the usual ones.

    Raise LaunchError for a path that cannot be executed; Podman would silently take another runtime
    instead.
    """
    for key, path in (("podman", podman), ("runtime", runtime)):
        if path and not os.access(path, os.X_OK):
            why = f"'{path}' is not a program on this node"
            raise LaunchError(why, see="site-configuration", where=f"{key} of the site")


def usable_mounts(planned: Sequence[NodeMount], unmet: list[LaunchError]) -> list[NodeMount]:
    """Return the plan's mounts; add an error to `unmet` for impossible ones.

    A mount with the flag `nofail` whose source does not exist is left out.
    """
    mounts: list[NodeMount] = []
    for mount in planned:
        problem = _source_problem(mount)
        if problem == _ABSENT and "nofail" in mount.options:
            continue
        mounts.append(mount)
        if problem:
            error = unusable(SOURCE, mount.source, problem, _place(mount.origin))
            if mount.origin in _OF_COMMAND_LINE and _is_torn(mount.source):
                error.hint = _TORN
            if mount.origin.startswith(_OF_SITE):
                error.see = "site-mount-missing"
            unmet.append(error)
        if problem := _target_problem(mount.target, [made.target for made in mounts[:-1]]):
            unmet.append(_of_destination(mount, problem))
    return mounts


def _is_torn(path: str) -> bool:
    """Check whether an absent path is the beginning of another, up to a comma in its last name."""
    try:
        names = os.listdir(os.path.dirname(path))
    except OSError:
        return False
    return any(name.startswith(f"{os.path.basename(path)},") for name in names)


def _target_problem(target: str, earlier: Sequence[str]) -> str:
    if is_reserved(target):
        return "cannot be replaced"
    if _has_no_place(target, earlier):
        return "does not exist on this node, and only the kernel makes files there"
    return excess(target)


def _has_no_place(target: str, earlier: Sequence[str]) -> bool:
    """Check for a destination in /proc or /sys that is absent and that no `earlier` mount covers.

    Nobody can create a mount point there.
    """
    if not target.startswith(_OF_KERNEL) or os.path.lexists(target):
        return False
    return not any(target.startswith(f"{other}/") for other in earlier)


def absence(path: str) -> str:
    """Return why a path leads to no file on this host, "" if it leads to one."""
    try:
        os.stat(path)
    except OSError as error:
        return _reason(error)
    return ""


def unusable(kind: str, path: str, problem: str, where: str = "") -> LaunchError:
    """Return the error for a SOURCE or a DEVICE that this host lacks or the user may not use."""
    hint = _FORBIDDEN if (kind, problem) == (SOURCE, _DENIED) else None
    return LaunchError(problem, hint, _SEE[kind], where=where, kind=kind, name=path)


def _of_destination(mount: NodeMount, problem: str) -> LaunchError:
    where, kind = _place(mount.origin), "mount destination"
    return LaunchError(problem, see="mount-destination", where=where, kind=kind, name=mount.target)


def _place(origin: str) -> str:
    """Return an origin in the form with which messages begin: "site: FILE:KEY" as "FILE: KEY"."""
    if not origin.startswith(_OF_SITE):
        return origin
    file, _colon, key = origin.removeprefix(_OF_SITE).rpartition(":")
    return f"{file}: {key}"


def _source_problem(mount: NodeMount) -> str:
    if mount.kind == "tmpfs":
        return ""
    problem = absence(mount.source)
    if problem or mount.kind != "squashfs":
        return problem
    try:
        check_image(mount.source)
    except LaunchError as failure:
        return failure.reason
    return ""


def usable_devices(
    planned: Sequence[NodeDevice], allowed: Sequence[str], unmet: list[LaunchError]
) -> list[str]:
    """Return the paths of the plan's devices; add an error to `unmet` for each unusable one.

    CDI names are left to devices/cdi.py. Whether the site has `allowed` a device is checked again
    here, because a deferred name is known only on the node.
    """
    found = []
    for device in planned:
        name, where = device.name, _place(device.origin)
        if not _is_offered(name, allowed):
            why, see = "this site does not offer it", "device-not-offered"
            unmet.append(LaunchError(why, see=see, where=where, kind=DEVICE, name=name))
        elif device.cdi:
            continue
        elif problem := _device_problem(name):
            error = unusable(DEVICE, name, problem, where)
            error.hint = device.hint
            unmet.append(error)
        else:
            found.append(name)
    return found


def _device_problem(path: str) -> str:
    if ":" in path:
        return "Podman does not accept a device with a colon in its path"
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return _reason(error)
    if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
        return "is not a device"
    if not (os.access(path, os.R_OK) or os.access(path, os.W_OK)):
        return "you may not open it on this node"
    return ""


def _is_offered(path: str, allowed: Sequence[str]) -> bool:
    if "*" in allowed:
        return True
    from container_engine.node.pattern import matches

    # "/dev/shm/../sda" is not below /dev/shm
    real = os.path.normpath(path) if path.startswith("/") else path
    return any(matches(real, pattern) for pattern in allowed)


def _reason(error: OSError) -> str:
    # `usable_mounts` compares with _ABSENT
    return _ABSENT if isinstance(error, FileNotFoundError) else str(error.strerror)
