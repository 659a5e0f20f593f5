"""Remove a directory with everything below it, unless something is mounted there."""

from __future__ import annotations

import errno
import os
import stat

from container_engine.base.mountinfo import mounts


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
    below = os.path.join(os.path.realpath(path), "")
    for mount in mounts():
        if os.path.join(mount.place, "").startswith(below):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), mount.place)
