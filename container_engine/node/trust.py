"""Whether a file that chooses what is run is an administrator's, with all directories above it."""

from __future__ import annotations

import os
import stat

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def distrust(path: str) -> str:
    """Why a file or directory is not only root's (or the engine's owner's); "" if it is.

    A sticky directory of root's above it (/tmp) is good enough: nobody can replace what root has
    in it. Raises OSError.
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
) -> str:
    if status.st_uid not in owners:
        return f"'{path}': owned by user {status.st_uid}, not by root"
    sticky = sticky_is_safe and status.st_mode & stat.S_ISVTX
    if status.st_mode & _OTHERS_MAY_WRITE and not sticky:
        return f"'{path}': others than its owner may write it"
    return ""
