"""The temporary store of a launch with EDF_IMAGESTORE=void, which keeps no images.

Each such store has a directory of its own, which is removed when its owner process ends, either by
the owner itself or by `ce-reaper`, which waits for it. If both were killed, the next launch of this
kind, `ce gc` and Slurm's epilog find the store by a link in the user's home,
~/.local/state/container-engine/void/JOB-NAME, with job 0 for a launch outside of any job.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

from container_engine.base import reaper
from container_engine.base.errors import CeError, UserError
from container_engine.base.process import reason
from container_engine.images.store import lease
from container_engine.images.store.store import Store

_PREFIX = ".ce-void-"
_STALE_S = 3600  # ce-reaper renews the directory's time every few minutes
_RECORDS = "container-engine/void"


class EphemeralStore:
    """A store below `place` while the process `pid` lives; created when it is first needed."""

    def __init__(self, env: Mapping[str, str], place: str, pid: int) -> None:
        self._env, self._place, self._pid = env, place, pid
        self.root = ""
        self.record = ""

    def store(self, arch: str) -> Store:
        """Return the store, created if need be. Raise UserError if that fails."""
        if not self.root:
            try:
                self._make()
            except OSError as error:
                where = error.filename or self._place
                raise UserError(
                    f"EDF_IMAGESTORE=void: '{where}': {reason(error)}",
                    "images for one step are in the site's passing_dir, else in SCRATCH",
                    "store-unusable",
                ) from None
        return Store(self.root, arch)

    def _make(self) -> None:
        remove_dead(self._env)
        os.makedirs(self._place, exist_ok=True)
        start = lease.start_of(self._pid)
        if not start:
            message = "EDF_IMAGESTORE=void: the process that asked for this image has ended"
            raise UserError(message, see="store-none")
        self.root = tempfile.mkdtemp(prefix=_PREFIX, dir=self._place)
        owner = lease.this_process("")._replace(pid=self._pid, start=start)
        lease.note_owner(self.root, owner)
        name = os.path.basename(self.root).removeprefix(_PREFIX)
        directory = records(self._env)
        with contextlib.suppress(OSError):  # the link only helps a later cleanup
            os.makedirs(directory, 0o700, exist_ok=True)
            record = f"{directory}/{self._env.get('SLURM_JOB_ID', '0')}-{name}"
            os.symlink(self.root, record)
            self.record = record

    def settle(self) -> None:
        """Remove everything but the image once it has been imported."""
        for name in ("blobs", "work", "locks"):
            shutil.rmtree(os.path.join(self.root, name), ignore_errors=True)

    def remove(self) -> None:
        """Remove the store. No-op if it was never created."""
        if self.root:
            _remove(self.root, self.record)
            self.root = ""

    def hand_over(self, libexec: str) -> None:
        """Let ce-reaper remove the store when its owner ends.

        No-op if the store was never created. Raise CeError, after removing the store.
        """
        if not self.root:
            return
        try:
            owner = os.pidfd_open(self._pid)
        except OSError:
            self.remove()
            message = "the process that asked for this image has ended"
            raise CeError(message, see="launcher-ended") from None
        try:
            reaper.start(libexec, "store", (owner,), self.root, self.record)
        except CeError:
            self.remove()
            raise
        finally:
            os.close(owner)


def records(env: Mapping[str, str]) -> str:
    return os.path.join(env.get("HOME") or "/", ".local/state", _RECORDS)


class Left(NamedTuple):
    """A store whose owner has ended, and the link by which it was found."""

    root: str
    record: str


def remove_dead(env: Mapping[str, str]) -> list[Left]:
    """Remove and return the stores left by this user's killed launches, on any host."""
    left = dead(env)
    for one in left:
        _remove(*one)
    return left


def dead(env: Mapping[str, str]) -> list[Left]:
    directory = records(env)
    found = []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(directory)):
            record = os.path.join(directory, name)
            with contextlib.suppress(OSError):
                left = Left(os.readlink(record), record)
                if _is_dead(left.root):
                    found.append(left)
    return found


def _is_dead(root: str) -> bool:
    """Check whether the owner of a store has ended.

    On another host the owner counts as alive while `ce-reaper` renews the directory's time.
    """
    if not os.path.basename(root).startswith(_PREFIX):
        return False
    try:
        return lease.is_abandoned(root, _STALE_S)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _remove(root: str, record: str) -> None:
    shutil.rmtree(root, ignore_errors=True)
    with contextlib.suppress(OSError):
        if record and not os.path.exists(root):
            os.unlink(record)
