"""Check that only trusted users can change a file that decides what is run.

The only place in Python that checks it, with one exception: `node/report/trace.py` compares
inline, because every launch would pay for the import. The plugin has its own check, `append` in
`spank_plugin/plugin/audit.c`.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    # a path, the reason for refusing it, and the command that repairs it
    Distrust = tuple[str, str, str]

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def owner_name(uid: int) -> str:
    """Return the name of a user, or "user UID" for one without a name."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def fault(
    path: str,
    status: os.stat_result,
    owners: Collection[int],
    *,
    owner: str = "root",
    sticky_is_safe: bool = False,
) -> Distrust | None:
    """Return the fault if others than `owners` can change what `status` describes, or None.

    `owner` is shown as the one it should have. In a sticky directory (/tmp) other users cannot
    replace its owner's files, but they can add their own.
    """
    if status.st_uid not in owners:
        return path, f"owned by user {status.st_uid}, not by {owner}", f"chown {owner} {path}"
    sticky = sticky_is_safe and status.st_mode & stat.S_ISVTX
    if status.st_mode & _OTHERS_MAY_WRITE and not sticky:
        return path, "others than its owner may write it", f"chmod go-w {path}"
    return None


def fault_above(path: str, owners: Collection[int]) -> Distrust | None:
    """Return the first fault in the directories above `path`, a real path. Raise OSError."""
    while path != "/":
        path = os.path.dirname(path)
        found = fault(path, os.lstat(path), owners, sticky_is_safe=True)
        if found:
            return found
    return None


def of_engine() -> frozenset[int]:
    """Return the uids that decide what is run anyway: root and the owner of the engine's code."""
    return frozenset((0, os.stat(__file__).st_uid))


def code_in_use() -> list[str]:
    """Return the files of the engine's code that this process has loaded."""
    own = __name__.partition(".")[0]
    loaded = [module for name, module in sys.modules.items() if name.partition(".")[0] == own]
    return sorted(file for module in loaded if (file := getattr(module, "__file__", None)))


def looked_at(path: str) -> dict[str, None]:
    """Return the questions (answers.py) about files on which `distrust` depends."""
    real = os.path.realpath(path)
    above = [f"o{real[:at] or '/'}" for at, letter in enumerate(real) if letter == "/"]
    return dict.fromkeys((f"f{path}", f"r{path}", f"o{__file__}", *above))


def distrust(path: str) -> Distrust | None:
    """Return the fault of a file, which may be a symlink, and of the directories above it.

    Only root and the owner of the engine's code are trusted. Raise OSError.
    """
    owners, real = of_engine(), os.path.realpath(path)
    return fault(path, os.stat(real), owners) or fault_above(real, owners)
