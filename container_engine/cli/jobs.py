"""Images of a store that running jobs use. Slurm is queried only if the store names a job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from container_engine.errors import CeError
from container_engine.images.store import in_use
from container_engine.process import output

if TYPE_CHECKING:
    from container_engine.images.store.in_use import InUse, Running
    from container_engine.submit.context import Context

_TIMEOUT_S = 60
_CLUSTER = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)
# with SLURM_CLUSTERS set, a line with the cluster's name precedes them
_JOB = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\w+)\s*$", re.MULTILINE)
# a job that completes still has processes, one that is requeued is pending again
_ENDED = frozenset(
    [
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE"),
        *("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"),
    ]
)
_HIDDEN = re.compile(r"^PrivateData\s*=.*\bjobs\b", re.MULTILINE)


def used_by_jobs(root: str, context: Context) -> InUse:
    """Return which images of the store `root` jobs use.

    If Slurm does not answer, every job that the store names counts as running.
    """
    found = in_use.links(root)  # before the query, or new jobs would be taken for ended ones
    running = _running(context) if found else in_use.Running("", None, context.uid)
    return in_use.in_use(root, found, running)


def plain_environment(context: Context) -> dict[str, str]:
    """Return the environment without variables that change what squeue lists or its format."""
    return {name: text for name, text in context.env.items() if not name.startswith("SQUEUE_")}


def _running(context: Context) -> Running:
    """Return the jobs of all users: a store may be shared, and a link belongs to the job's user."""
    env = plain_environment(context)
    try:
        # without --states=all, a job that has just ended looks like one that is not listed yet
        argv = ["squeue", "--noheader", "--states=all", "--format=%A %U %T"]
        listed = output(argv, env, _TIMEOUT_S)
        shown = output(["scontrol", "show", "config"], env, _TIMEOUT_S).decode(errors="replace")
    except CeError:
        return in_use.Running("", None, context.uid)
    name, is_hidden = _CLUSTER.search(shown), _HIDDEN.search(shown) and context.uid != 0
    found = _JOB.findall(listed.decode(errors="replace"))
    jobs = {job: int(user) for job, user, state in found if state not in _ENDED}
    ended = frozenset(job for job, _user, state in found if state in _ENDED) - jobs.keys()
    return in_use.Running(name[1] if name else "", jobs, context.uid, not is_hidden, ended)
