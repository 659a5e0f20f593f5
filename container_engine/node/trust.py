"""Check that only an administrator can change a file that decides what is run."""

from __future__ import annotations

import os
import stat

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def distrust(path: str) -> tuple[str, str] | None:
    """Return the path that others than root or the engine's owner may change, and why, or None.

    The directories above it are checked, too. A sticky one of root's (/tmp) is safe: no other user
    can replace root's files there. Raise OSError if a path cannot be read.
    """
    owners = (0, os.stat(__file__).st_uid)
    real = os.path.realpath(path)
    found = _fault(path, os.stat(real), owners, sticky_is_safe=False)
    while not found and real != "/":
        real = os.path.dirname(real)
        found = _fault(real, os.stat(real), owners, sticky_is_safe=True)
    return found


def _fault(
    path: str, status: os.stat_result, owners: tuple[int, int], *, sticky_is_safe: bool
) -> tuple[str, str] | None:
    if status.st_uid not in owners:
        return path, f"owned by user {status.st_uid}, not by root"
    sticky = sticky_is_safe and status.st_mode & stat.S_ISVTX
    if status.st_mode & _OTHERS_MAY_WRITE and not sticky:
        return path, "others than its owner may write it"
    return None
