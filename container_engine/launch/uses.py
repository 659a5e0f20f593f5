"""Says in the image's store that a job uses it: nobody shall take the file away under its tasks.

A symbolic link STORE/uses/JOB-DIGEST@CLUSTER to the name of the image's file, made by the first
node of a step: one operation on the shared file system and no open. The job's further steps with
this image find it there. `ce gc` removes it once the job has ended (images/inuse.py reads it).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_DIGITS = 12


def note(path: str, node: Mapping[str, str]) -> None:
    """`path` is the image's, `node` the step's environment. Nothing where it cannot be said."""
    job, cluster = node.get("SLURM_JOB_ID", ""), node.get("SLURM_CLUSTER_NAME", "")
    directory, name = os.path.split(path)
    store, images = os.path.split(directory)
    if images != "images" or not name.startswith("sha256-") or not job.isdigit() or "/" in cluster:
        return
    if node.get("SLURM_NODEID", "0") != "0":
        return
    digest = name.removeprefix("sha256-")[:_DIGITS]
    link = f"{store}/uses/{job}-{digest}@{cluster}"
    try:
        os.symlink(name, link)
    except FileNotFoundError:
        _in_new_directory(name, link)
    except OSError:
        pass  # an earlier step has said so, or the store is somebody else's


def _in_new_directory(name: str, link: str) -> None:
    try:
        os.mkdir(os.path.dirname(link))
        os.symlink(name, link)
    except OSError:
        pass
