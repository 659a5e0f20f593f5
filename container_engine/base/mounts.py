"""Mounts of this host, where one may be in a container, and trees that contain none."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# as the kernel names them; those in user space begin with "fuse."
_NETWORK_KINDS = {
    *("9p", "afs", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "panfs", "pvfs2"),
    *("smb3", "wekafs", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.juicefs", "fuse.sshfs"),
}


def is_in(path: str, directory: str) -> bool:
    """Check whether a path is `directory` or below it; nothing is below ""."""
    return bool(directory) and f"{path}/".startswith(f"{directory.rstrip('/')}/")


class Mount:
    """A mount: `device` is MAJOR:MINOR, `place` the mount point, `kind` the file system's type.

    A line of /proc/PID/mountinfo, see proc_pid_mountinfo(5). `options` are those of the
    file system, not the mount's own.
    """

    def __init__(self, line: bytes) -> None:
        before, _dash, after = line.rstrip(b"\n").partition(b" - ")
        fields = before.split(b" ")
        kind, source, options = after.split(b" ", 2)
        self.device, self.kind = os.fsdecode(fields[2]), os.fsdecode(kind)
        self.place, self.source = _unescaped(fields[4]), _unescaped(source)
        self.options = [_unescaped(option) for option in options.split(b",")]


def mounts(file: str | int = "/proc/self/mountinfo") -> Iterator[Mount]:
    """Yield the mounts, in the file's order. A descriptor is not closed. Raise OSError."""
    with open(file, "rb", closefd=isinstance(file, str)) as lines:
        yield from map(Mount, lines)


def network_file_system(path: str) -> str:
    """Return the kind of network file system that `path` is on; "" if it is on none, or unknown.

    The path need not exist. Only the table of mounts is read, so a file server that does not answer
    costs nothing, but symlinks are not followed.
    """
    try:
        found = list(mounts())
    except OSError:
        return ""
    best, kind = "", ""
    for mount in found:
        place = mount.place
        if os.path.commonpath([place, path]) == place and len(place) >= len(best):
            best, kind = place, mount.kind
    return kind if kind in _NETWORK_KINDS else ""


def _unescaped(field: bytes) -> str:
    """Decode a field, whose blanks and backslashes are escaped as octal numbers."""
    first, *others = field.split(b"\\")
    return os.fsdecode(first + b"".join(bytes((int(o[:3], 8),)) + o[3:] for o in others))


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


def remove_tree(path: str) -> None:
    """Remove a directory and everything below it. Raise OSError; EBUSY if it contains a mount.

    What is mounted, for example a home directory, is not part of the tree. Directories that their
    owner may not read or change, as overlayfs and root in a container make them, are made
    accessible first.
    """
    from shutil import rmtree

    _refuse_mounts(path)
    os.chmod(path, stat.S_IRWXU)
    for place, names, _files in os.walk(path):
        for one in (f"{place}/{name}" for name in names):
            if not os.path.islink(one):
                os.chmod(one, stat.S_IRWXU)
    rmtree(path)


def _refuse_mounts(path: str) -> None:
    import errno

    below = os.path.join(os.path.realpath(path), "")
    for mount in mounts():
        if os.path.join(mount.place, "").startswith(below):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), mount.place)
