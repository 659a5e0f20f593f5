"""Decides which paths of a container can be the destination of a mount, on any host. Pure."""

_BASES = frozenset(["/", "/proc", "/sys", "/dev"])
_NOT_HERE = (
    # they mean something else to each process that opens them, so no runtime mounts there
    *("/proc/self/", "/proc/thread-self/"),
    *("/dev/fd/", "/dev/stdin/", "/dev/stdout/", "/dev/stderr/"),
    # where hooks mount files for which the image has no place, and the init process
    *("/.container-engine/", "/dev/.ce-init/", "/dev/.ce-entry/"),
)
_PROCESSES = "/proc/"
# the limits of Linux in bytes: for a name, and for a path without the NUL that ends it
_MAX_NAME, _MAX_PATH = 255, 4095


def is_reserved(target: str) -> bool:
    """Check whether an absolute, normalized path belongs to the system or to the engine."""
    if target in _BASES or f"{target}/".startswith(_NOT_HERE):
        return True
    name = target.removeprefix(_PROCESSES).partition("/")[0]
    return target.startswith(_PROCESSES) and name.isdigit()


def excess(target: str) -> str:
    """Return why the path is too long for Linux; "" if it is not."""
    path = target.encode("utf-8", "surrogateescape")
    longest = max(map(len, path.split(b"/")))
    for what, size, limit in (("name", longest, _MAX_NAME), ("path", len(path), _MAX_PATH)):
        if size > limit:
            return f"has a {what} of {size} bytes; Linux allows {limit}"
    return ""
