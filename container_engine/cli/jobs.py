"""Which images of a store running jobs use; Slurm is only asked where the store names a job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from container_engine.errors import CeError
from container_engine.images import inuse
from container_engine.process import output

if TYPE_CHECKING:
    from container_engine.cli.context import Context
    from container_engine.images.inuse import InUse, Running

_TIMEOUT_S = 60
_CLUSTER = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)
# with SLURM_CLUSTERS a line with the cluster's name stands before them
_JOB = re.compile(r"^\s*(\d+)\s+(\d+)\s*$", re.MULTILINE)
_HIDDEN = re.compile(r"^PrivateData\s*=.*\bjobs\b", re.MULTILINE)


def in_use(root: str, context: Context) -> InUse:
    """For the store `root`. Where Slurm does not answer, every job that is named counts."""
    found = inuse.links(root)  # before Slurm is asked, or new jobs would be taken for old ones
    running = _running(context) if found else inuse.Running("", None, context.uid)
    return inuse.in_use(root, found, running)


def plain_environment(context: Context) -> dict[str, str]:
    """Without variables that make squeue show less, or in another form."""
    return {name: text for name, text in context.env.items() if not name.startswith("SQUEUE_")}


def _running(context: Context) -> Running:
    """Of all users: a store may be shared, and its links are of whoever ran the job."""
    env = plain_environment(context)
    try:
        listed = output(["squeue", "--noheader", "--format=%A %U"], env, _TIMEOUT_S)
        shown = output(["scontrol", "show", "config"], env, _TIMEOUT_S).decode(errors="replace")
    except CeError:
        return inuse.Running("", None, context.uid)
    name, is_hidden = _CLUSTER.search(shown), _HIDDEN.search(shown) and context.uid != 0
    jobs = {job: int(user) for job, user in _JOB.findall(listed.decode(errors="replace"))}
    return inuse.Running(name[1] if name else "", jobs, context.uid, not is_hidden)
