"""Make a file as a draft beside its place, and remove drafts that killed processes have left."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator

from container_engine.base import records
from container_engine.base.files import is_own, now_at, publish
from container_engine.base.mounts import remove_tree
from container_engine.images.store import lease

_PREFIX = ".ce-save-"
_OWNER = "owner"


@contextlib.contextmanager
def directory(parent: str, limit_s: float) -> Iterator[str]:
    """Create a directory below `parent`, and remove it afterwards. Raise OSError.

    First remove those that killed processes of this user have left. A process on another host
    cannot be seen: its directory is removed at twice the age of `limit_s` seconds, the longest that
    one is used.
    """
    _remove_old(parent, 2 * limit_s)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as work:
        publish(os.path.join(work, _OWNER), records.to_json(lease.this_process("")))
        yield work


def _remove_old(parent: str, age_s: float) -> None:
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        with contextlib.suppress(OSError):  # it has ended meanwhile, or something is mounted there
            if name.startswith(_PREFIX) and _is_left(path, age_s):
                remove_tree(path)


def _is_left(path: str, age_s: float) -> bool:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or not is_own(status):
        return False
    owner, machine = lease.read(os.path.join(path, _OWNER)), lease.this_machine()
    if owner is not None and owner.machine == machine:
        return owner.is_dead(machine)
    return now_at(os.path.dirname(path)) - status.st_mtime > age_s
