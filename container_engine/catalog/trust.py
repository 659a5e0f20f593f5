"""Checks that only trusted users can change hook files: a hook may choose what root runs."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from container_engine.process import reason

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Distrust(NamedTuple):
    """A path, the reason for refusing it, and the command that repairs it."""

    path: str
    message: str
    hint: str | None = None


def of_ancestors(directory: str, owners: frozenset[int]) -> Distrust | None:
    """Return the first fault in the directories above `directory`, which is a real path.

    A sticky directory of a trusted owner (/tmp) is accepted: other users cannot replace its
    owner's files in it.
    """
    path = directory
    while path != "/":
        path = os.path.dirname(path)
        found = _of_status(path, os.lstat(path), owners, sticky_is_safe=True)
        if found:
            return found
    return None


def of_entry(path: str, root: str, owners: frozenset[int]) -> Distrust | None:
    """Return the fault of a file or directory below `root`, a real path. Symlinks are followed."""
    try:
        real = os.path.realpath(path, strict=True)
        status = os.lstat(real)
    except OSError as error:
        return Distrust(path, reason(error))
    if real != root and not real.startswith(f"{root}/"):
        return Distrust(path, f"is a symbolic link out of {root}, to {real}")
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return Distrust(path, "is neither a file nor a directory")
    return _of_status(path, status, owners, sticky_is_safe=False)


def _of_status(
    path: str, status: os.stat_result, owners: frozenset[int], *, sticky_is_safe: bool
) -> Distrust | None:
    if status.st_uid not in owners:
        return Distrust(path, f"owned by user {status.st_uid}, not by root", f"chown root {path}")
    sticky = sticky_is_safe and status.st_mode & stat.S_ISVTX
    if status.st_mode & _OTHERS_MAY_WRITE and not sticky:
        return Distrust(path, "others than its owner may write it", f"chmod go-w {path}")
    return None
