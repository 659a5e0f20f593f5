"""Why a container did not start, in one line that a user or an administrator can act on."""


class LaunchError(Exception):
    """A start that failed; the text is one line, `code` what the task exits with."""

    def __init__(self, message: str, code: int = 125) -> None:
        super().__init__(message)
        self.code = code


_EPERM, _EACCES, _ENOENT, _ENOSPC, _ENODEV = 1, 13, 2, 28, 19

# (operation of the guard, errno) -> what the kernel's word really means here, and the remedy
_KERNEL_WORDS = {
    ("namespaces", _EPERM): "user namespaces are not permitted on this node "
    "(sysctl kernel.unprivileged_userns_clone or kernel.apparmor_restrict_unprivileged_userns; "
    "ask the administrator)",
    ("namespaces", _ENOSPC): "no more user namespaces on this node "
    "(sysctl user.max_user_namespaces; ask the administrator)",
    ("fuse", _EACCES): "/dev/fuse may not be opened (it must have mode 0666; "
    "ask the administrator)",
    ("fuse", _ENOENT): "/dev/fuse does not exist (the kernel module fuse; ask the administrator)",
    ("fuse", _ENODEV): "the kernel has no FUSE (module fuse; ask the administrator)",
    ("session", _EPERM): "the kernel refuses to mount /proc or a tmpfs in a user namespace "
    "(/proc of this machine is covered by other mounts?)",
}

_CGROUP_HINT = (
    " (crun refuses a hybrid cgroup hierarchy whose unified part has a controller of its own;"
    " ask the administrator)"
)
_SPACE_HINT = " (the container's space in memory, tmpfs_size, is too small or the memory is full)"


def explain(report: str) -> str:
    """One line from the guard's report: operation, errno, what, then the output of its children."""
    stage, number, what, log = [*report.split("\n", 3), "", "", ""][:4]
    errno = int(number) if number.isdigit() else 0
    if stage == "podman":
        return _podman(what, log)
    known = _KERNEL_WORDS.get((stage, errno))
    if known is not None:
        return known
    reason = f": {_strerror(errno)}" if errno else ""
    said = _last_line(log)
    hint = _SPACE_HINT if errno == _ENOSPC else ""
    return f"{what}{reason}{hint}" + (f" ({said})" if said else "")


def _podman(what: str, log: str) -> str:
    errors = [line for line in log.split("\n") if line.startswith("Error: ")]
    said = errors[-1][len("Error: ") :] if errors else _last_line(log)
    hint = _CGROUP_HINT if "cgroup" in said and "unified" in said else ""
    hint += _SPACE_HINT if "no space left on device" in said else ""
    return f"Podman cannot start the container: {said or what}{hint}"


def _strerror(number: int) -> str:
    import os

    return os.strerror(number)


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.split("\n") if line.strip()]
    return lines[-1] if lines else ""
