"""Tells which paths of this host are on a network file system."""

from __future__ import annotations

import contextlib
import os

from container_engine.mountinfo import mounts

# as the kernel names them; those in user space begin with "fuse."
_KINDS = {
    *("9p", "afs", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "panfs", "pvfs2"),
    *("smb3", "wekafs", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.juicefs", "fuse.sshfs"),
}


def network_file_system(path: str) -> str:
    """Return the kind of network file system that `path` is on; "" if it is on none, or unknown.

    The path need not exist. Only the table of mounts is read, so a file server that does not answer
    costs nothing, but symlinks are not followed.
    """
    best, kind = "", ""
    with contextlib.suppress(OSError):
        for mount in mounts():
            place = mount.place
            if os.path.commonpath([place, path]) == place and len(place) >= len(best):
                best, kind = place, mount.kind
    return kind if kind in _KINDS else ""
