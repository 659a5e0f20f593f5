"""Says in the image's store that a job uses it: nobody shall take the file away under its tasks.

A symbolic link STORE/uses/JOB-DIGEST.UID@CLUSTER to the name of the image's file, made by the first
node of a step: one operation on the shared file system and no open. The job's further steps with
this image find it there. `ce gc` removes it once the job has ended (images/store/in_use.py).
Everybody may write there: where another user has taken the name, it gets something behind it.
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
    own = f"{store}/uses/{job}-{digest}.{os.geteuid()}"
    link = f"{own}@{cluster}"
    try:
        os.symlink(name, link)
    except FileNotFoundError:
        _in_new_directory(name, link)
    except FileExistsError:
        _unless_said(name, link, f"{own}.{os.urandom(4).hex()}@{cluster}")
    except OSError:
        pass  # the store is somebody else's


def _unless_said(name: str, link: str, another: str) -> None:
    """An earlier step has said so, or somebody wanted it not to be said."""
    try:
        if os.lstat(link).st_uid != os.geteuid() or os.readlink(link) != name:
            os.symlink(name, another)
    except OSError:
        pass


def _in_new_directory(name: str, link: str) -> None:
    try:
        os.mkdir(os.path.dirname(link))
        os.symlink(name, link)
    except OSError:
        pass
