"""Record in the image's store that a job uses an image, so that no user deletes it meanwhile.

The record is a symlink STORE/uses/JOB-DIGEST.UID@CLUSTER to the name of the image's file. The first
node of a step makes it with one operation on the shared file system, and opens no file. The job's
further steps with this image find it. `ce gc` removes it once the job has ended
(images/store/inventory.py). Every user may write to the directory: if another user has taken the
name, a random suffix follows the UID.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = "sha256-"
_DIGITS = 12


def record_of(path: str) -> tuple[str, str] | None:
    """Return the directory for records of an image's use, and the name of the image's file.

    Return None for an image that is not in a store.
    """
    directory, name = os.path.split(path)
    store, images = os.path.split(directory)
    if images != "images" or not name.startswith(_NAME):
        return None
    return f"{store}/uses", name


def note(path: str, node: Mapping[str, str]) -> None:
    """Record that the step with the environment `node` uses the image `path`, if possible.

    For a start without Python, ce-guard does this (spank_plugin/guard/step_answers.c).
    """
    job, cluster = node.get("SLURM_JOB_ID", ""), node.get("SLURM_CLUSTER_NAME", "")
    found = record_of(path)
    if found is None or not job.isdigit() or "/" in cluster:
        return
    if node.get("SLURM_NODEID", "0") != "0":
        return
    directory, name = found
    digest = name.removeprefix(_NAME)[:_DIGITS]
    own = f"{directory}/{job}-{digest}.{os.geteuid()}"
    link = f"{own}@{cluster}"
    try:
        os.symlink(name, link)
    except FileNotFoundError:
        _in_new_directory(name, link)
    except FileExistsError:
        _unless_recorded(name, link, f"{own}.{os.urandom(4).hex()}@{cluster}")
    except OSError:
        pass  # the store cannot be written, as one that another user owns


def _unless_recorded(name: str, link: str, another: str) -> None:
    """Make the record as `another` unless `link` is this user's record from an earlier step."""
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
