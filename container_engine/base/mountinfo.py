"""Mounts of this host, from /proc/PID/mountinfo: see proc_pid_mountinfo(5)."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# as the kernel names them; those in user space begin with "fuse."
_NETWORK_KINDS = {
    *("9p", "afs", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "panfs", "pvfs2"),
    *("smb3", "wekafs", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.juicefs", "fuse.sshfs"),
}


class Mount:
    """A mount: `device` is MAJOR:MINOR, `place` the mount point, `kind` the file system's type.

    `options` are those of the file system, not the mount's own.
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
