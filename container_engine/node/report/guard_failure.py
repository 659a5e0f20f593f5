"""Explain a failure that the guard reports, in one line for the user or administrator."""

from __future__ import annotations

from errno import (
    EACCES,
    EAGAIN,
    EIO,
    EISDIR,
    ELOOP,
    EMFILE,
    ENAMETOOLONG,
    ENFILE,
    ENODEV,
    ENOENT,
    ENOMEM,
    ENOSPC,
    ENOTDIR,
    EPERM,
    ETOOMANYREFS,
)

from container_engine.base.errors import LaunchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from container_engine.node.node_plan import NodePlan

# limits of the user or of the host are reported as such, whatever the operation was; ce_start_help
# (spank_plugin/common/error.c) has the same
LIMITS = (EAGAIN, ENOMEM, ENFILE, EMFILE, ETOOMANYREFS)

_MOUNTS_WORDS = "no more mounts on this node (sysctl fs.mount-max)"
# (operation of the guard, errno) -> the meaning of the kernel's error here, and its code in faults/
_KERNEL_WORDS = {
    ("namespaces", EPERM): (
        "user namespaces are not permitted on this node "
        "(sysctl kernel.unprivileged_userns_clone or kernel.apparmor_restrict_unprivileged_userns)",
        "user-namespaces",
    ),
    ("namespaces", EACCES): (
        "AppArmor or another security module of this node refuses user namespaces "
        "(the engine has a profile for AppArmor, which allows them)",
        "user-namespaces",
    ),
    ("namespaces", ENOSPC): (
        "no more user namespaces on this node (sysctl user.max_user_namespaces)",
        "user-namespaces",
    ),
    ("process-namespace", ENOSPC): (
        "no more PID namespaces on this node (sysctl user.max_pid_namespaces)",
        "user-namespaces",
    ),
    ("mount-namespace", ENOSPC): (
        "no more mount namespaces on this node (sysctl user.max_mnt_namespaces)",
        "user-namespaces",
    ),
    ("session", ENOSPC): (_MOUNTS_WORDS, "proc-covered"),
    ("fuse", ENOSPC): (_MOUNTS_WORDS, "proc-covered"),
    ("overlay", ENOSPC): (_MOUNTS_WORDS, "proc-covered"),
    ("fuse", EACCES): ("/dev/fuse may not be opened (it must have mode 0666)", "fuse-unavailable"),
    ("fuse", ENOENT): (
        "/dev/fuse does not exist (load the kernel module fuse)",
        "fuse-unavailable",
    ),
    ("fuse", ENODEV): ("the kernel has no FUSE (load the module fuse)", "fuse-unavailable"),
    ("session", EPERM): (
        "the kernel refuses to mount /proc or a tmpfs in a user namespace "
        "(do other mounts cover parts of /proc on this node?)",
        "proc-covered",
    ),
}

_CGROUP_WORDS = (
    " (crun refuses a hybrid cgroup hierarchy whose unified part has a controller of its own)"
)
_BELOW_WORDS = " (a mount's destination would be below a file of the image)"
_KIND_WORDS = " (only a file can be mounted on a file of the image, a directory on a directory)"
_RELATIVE_WORDS = " (entrypoints start in the image's WORKDIR)"
_RELATIVE_HINT = "write a full path into ENTRYPOINT of the Dockerfile, or entrypoint = false"
_FOREIGN_WORDS = " (the image is for a different processor than this node's)"
_KIND_HINT = "name a destination of the same kind, or one that the image does not have"
# how a Go program that crashes begins its output; a stack trace follows
_CRASHES = ("fatal error: ", "panic: ", "runtime: ")
# Podman 5 keeps its state in SQLite, which words its errors differently
_DATABASE_FULL = "database or disk is full"
_NAMESPACE_WORDS = (
    " (no more namespaces on this node: sysctl user.max_user_namespaces,"
    " user.max_pid_namespaces, user.max_mnt_namespaces)"
)
_SPACE_WORDS = " (the container's space in memory, tmpfs_size, is too small or the memory is full)"


def explain(report: str) -> LaunchError:
    """Return the error for a report of the guard: operation, errno, subject, children's output."""
    stage, number, what, log = [*report.split("\n", 3), "", "", ""][:4]
    errno = int(number) if number.isdecimal() else 0
    if stage in CREATORS:
        return _creation(CREATORS[stage], what, log, errno)
    known = _KERNEL_WORDS.get((stage, errno))
    if known is not None:
        return LaunchError(known[0], see=known[1], details=log)
    if stage.startswith("root-") and errno in _IN_THE_WAY:
        return _in_the_way(stage, what, errno)
    reason = f": {_strerror(errno)}" if errno else ""
    last = _last_line(without_id(log))
    # EIO is the image's: it is the only file system of a new container that is not in memory
    found = {ENOSPC: "container-space", EIO: "image-damaged"}.get(errno)
    see, hint = found or _SEE.get(stage, _OTHER), None
    if errno in LIMITS:
        from container_engine.base import shortage

        see, hint = shortage.CODE, shortage.hint(errno)
    words = _SPACE_WORDS if errno == ENOSPC else ""
    message = f"{what}{reason}{words}" + (f" ({last})" if last else "")
    return LaunchError(message, hint, see, details=log)


def of_plan(report: str, plan: NodePlan) -> LaunchError | None:
    """Return the error for a report about the plan's entrypoint or working directory, else None."""
    return of_entrypoint(report, plan.entrypoint) or of_workdir(report, plan.workdir_from)


def of_entrypoint(report: str, entrypoint: Sequence[str]) -> LaunchError | None:
    """Return the error for a report that the image's entrypoint ended; None for any other."""
    stage, number, _what, log = [*report.split("\n", 3), "", "", ""][:4]
    if not entrypoint or (stage, number) != ("container", "0"):
        return None
    import shlex

    words = shlex.join(entrypoint)
    shown = words if len(words) <= _LONGEST_SHOWN else f"{words[:_LONGEST_SHOWN]}…"
    last = _last_line(without_id(log))
    message = f"the image's entrypoint ended instead of executing its arguments: {shown}"
    words, see, hint = _of_program(last)
    message += f" ({last})" if last else ""
    return LaunchError(message + words, hint, see if words else "entrypoint-ended", details=log)


def of_workdir(report: str, origin: str) -> LaunchError | None:
    """Return the error for a report that the tasks' working directory is missing, else None.

    `origin` says who chose it.
    """
    stage, number, what, _log = [*report.split("\n", 3), "", "", ""][:4]
    if stage != "workdir":
        return None
    message = f"{what}: cannot change to it in the container: {_strerror(int(number))}"
    hint = None
    if origin == "the image":
        hint = _FILE_HINT if int(number) == ENOTDIR else _HIDDEN_HINT
    return LaunchError(message, hint, "workdir-missing", where=origin)


_FILE_HINT = "it leads to a file: set a workdir, or correct WORKDIR in the image"
_HIDDEN_HINT = "a mount hides it: create it in what is mounted, or set a workdir"
_LONGEST_SHOWN = 100
_OTHER = "container-setup"
# operations of the guard that create the container, and what they run
CREATORS = {"crun": "crun", "podman": "Podman"}
# operations of the guard whose failures always have the same code
_SEE = {
    "fuse": "fuse-unavailable",
    "overlay": "image-damaged",
    "served": "image-damaged",
    "program": "program-missing",
}


def _in_the_way(stage: str, what: str, errno: int) -> LaunchError:
    """Return the error for a path of the image that leads to a file, or nowhere."""
    message = f"{what}: {_strerror(errno)}" if errno else what
    if stage == "root-order":
        return LaunchError(message, _ORDER_HINT, "mount-destination")
    if stage != "root-place":
        return LaunchError(message, see="image-path")
    is_link = " is a link to " in what
    hint = _LINK_HINT if is_link else "choose another destination"
    return LaunchError(message + ("" if is_link else _BELOW_WORDS), hint, "mount-destination")


# 0: what is there is not a regular file
_IN_THE_WAY = (0, ELOOP, ENOTDIR, EISDIR, ENAMETOOLONG)
_ORDER_HINT = "write the destination as it is in the image, without the link"
_LINK_HINT = "choose another destination, or correct the link in the image"


def _creation(creator: str, what: str, log: str, errno: int) -> LaunchError:
    errors = [line for line in log.split("\n") if line.startswith("Error: ")]
    cause = errors[-1][len("Error: ") :] if errors else _crash(log) or _last_line(log)
    if cause.startswith("exit status"):
        # a program that Podman ran has failed, and has printed the reason before
        cause = _last_line(log.rpartition("\nError: ")[0]) or cause
    if not cause and creator == "crun" and what.endswith(f" {ENOSPC}"):
        # crun copies itself first; if that fails, its exit code is the only information
        cause = "no space left on device"
    cause = cause.replace(_DATABASE_FULL, "no space left on device")
    words, see, hint = _meaning(cause)
    if not words and errno == ENOENT:
        see = "program-missing"
    elif not words:
        from container_engine.base import shortage

        hint = shortage.hint_in(cause)
        see = shortage.CODE if hint else see
    message = f"{creator} cannot start the container: {cause or what}{words}"
    return LaunchError(message, see=see, hint=hint, details=log)


def _meaning(cause: str) -> tuple[str, str, str | None]:
    """Return what to add to the creator's words, "" if nothing is known; the code and the hint."""
    if "cgroup" in cause and "unified" in cause:
        return _CGROUP_WORDS, "cgroups-hybrid", None
    if "no space left on device" in cause.lower():
        return _of_no_space(cause)
    if ("mkdir" in cause or "creating directory" in cause) and "Not a directory" in cause:
        return _BELOW_WORDS, "mount-destination", "choose another destination"
    if _is_of_another_kind(cause):
        return _KIND_WORDS, "mount-destination", _KIND_HINT
    return _of_program(cause)


def _of_program(cause: str) -> tuple[str, str, str | None]:
    """Return what it means that the first program, the image's entrypoint, was not executed."""
    if "xec format error" in cause:
        return _FOREIGN_WORDS, "image-architecture", None
    if _is_of_relative_program(cause):
        return _RELATIVE_WORDS, "creation-failed", _RELATIVE_HINT
    return "", "creation-failed", None


def _of_no_space(cause: str) -> tuple[str, str, str | None]:
    """Return what ENOSPC means, which has several meanings, by the call that crun names."""
    if cause.startswith(("clone: ", "unshare: ")):
        return _NAMESPACE_WORDS, "user-namespaces", None
    if cause.startswith("mount `"):
        return f" ({_MOUNTS_WORDS})", "proc-covered", None
    return _SPACE_WORDS, "container-space", None


def _is_of_relative_program(cause: str) -> bool:
    """Check for a relative path that was not found; only an image's entrypoint can be one."""
    program = cause.partition("executable file ")[2].partition(" not found")[0].strip("`'\"")
    return "/" in program and not program.startswith("/")


def _is_of_another_kind(cause: str) -> bool:
    """Check for a file that was to be mounted on a directory, or the reverse.

    On /etc/passwd, which Podman itself reads, its message is a different one.
    """
    return ("mount `" in cause and "Not a directory" in cause) or (
        "unable to find user" in cause and "is a directory" in cause
    )


def _strerror(number: int) -> str:
    import os

    return os.strerror(number)


def _crash(log: str) -> str:
    return next((line for line in log.split("\n") if line.startswith(_CRASHES)), "")


def without_id(printed: str) -> str:
    """Drop the container's ID, Podman's own line, from what an entrypoint printed."""
    lines = printed.split("\n")
    return "\n".join(line for line in lines if not (len(line) == 64 and line.isalnum()))


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.split("\n") if line.strip()]
    return lines[-1] if lines else ""
