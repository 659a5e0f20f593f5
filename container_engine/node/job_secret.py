"""A secret that all steps of a job know, on all nodes, and no other user.

The only private place that steps share is the user's home directory. So there is one secret per
user; a job's secret is computed from it and the job's ID, and is never stored.
"""

from __future__ import annotations

import os
from hashlib import sha256

from container_engine.base.errors import LaunchError
from container_engine.base.files import is_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# not below $XDG_STATE_HOME, which may be set in one step and not in the next
PLACE = ".local/state/container-engine/secret"
_BYTES = 32


def of_job(node: Mapping[str, str], home: str, otherwise: str) -> str:
    """Return the secret of this job, or `otherwise`, the secret of this launch only.

    The latter is for launches without Slurm and for a home directory that cannot be written. Raise
    LaunchError if the file is not a valid secret.
    """
    # the components of a heterogeneous job have job IDs of their own
    job = node.get("SLURM_HET_JOB_ID") or node.get("SLURM_JOB_ID") or ""
    if not job.isdigit():
        return otherwise
    try:
        own = _of_user(f"{home}/{PLACE}")
    except OSError:
        return otherwise
    return sha256(b"container-engine job %s " % job.encode() + own).hexdigest()


def _of_user(path: str) -> bytes:
    """Return the user's secret. Raise OSError if it does not exist and cannot be created."""
    try:
        return _read(path)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        _make(path)
    return _read(path)


def _make(path: str) -> None:
    """Create the secret atomically. All nodes of a job may do so at once: the first one wins."""
    draft = f"{path}.{os.uname().nodename}.{os.getpid()}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, os.urandom(_BYTES))
        os.close(fd)
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        is_private, own = is_own(os.fstat(fd)), os.read(fd, _BYTES + 1)
    finally:
        os.close(fd)
    if not is_private or len(own) != _BYTES:
        raise LaunchError(
            f"'{path}' must be a file of {_BYTES} bytes that only you can read",
            see="hook-service",
            hint="remove the file; the next start makes a new one",
        )
    return own
