"""Save a container that lives with its job: by a step that joins it or continues it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from typing import NamedTuple

from container_engine.base import slurm
from container_engine.base.errors import CeError
from container_engine.base.files import created
from container_engine.base.process import reason
from container_engine.images.image_files import existing
from container_engine.node.job_containers.directory import MUST_EXIST
from container_engine.submit.context import Context

# variables that would override the record of the name
_OTHERS = ("PYXIS_CONTAINER_", "CE_ENVIRONMENT")
# JOB.NAME, where NAME is not the number of a step
_NAMED = re.compile(r"(\d+)\.(?!\d+$)([A-Za-z0-9_][A-Za-z0-9_.-]*)")
# NAME, which is not the number of a job
_IN_JOB = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class ContainerOfJob(NamedTuple):
    """A container of this name in this job."""

    job: str
    name: str


def parsed(text: str, job: str) -> ContainerOfJob | None:
    """Return the container that JOB.NAME means, or NAME in `job`; None for any other text.

    `job` is "" outside of a job.
    """
    if job and _IN_JOB.fullmatch(text):
        return ContainerOfJob(job, text)
    match = _NAMED.fullmatch(text)
    return None if match is None else ContainerOfJob(match[1], match[2])


def save(
    kept: ContainerOfJob, node: str | None, target: str, context: Context, *, replaces: bool
) -> int:
    """Save the container on this node of the job, else on its first, and return an exit code.

    Raise UserError if `target` exists and must not change, and CeError.
    """
    words = [f"--container-name={kept.name}", f"--container-save={target}", "true"]
    env = {k: v for k, v in context.env.items() if not k.startswith(_OTHERS)}
    job = slurm.jobs(env, context.uid).get(kept.job, kept.job)
    # the step finds a container by its name within this job
    env["SLURM_JOB_ID"] = job.partition("+")[0]
    env[MUST_EXIST] = "1"
    if not replaces:
        _reserve(target)
    before = _identity(target)
    try:
        argv = [*slurm.beside(job, node), slurm.NO_INPUT, "--export=ALL", *words]
        status = subprocess.run(argv, env=slurm.without_step(env), check=False).returncode
    except OSError as error:
        raise CeError(f"cannot start srun: {reason(error)}") from None
    finally:
        # srun reports a container that was not saved, but its exit code is that of `true`
        is_saved = _identity(target) != before
        if not (replaces or is_saved):
            with contextlib.suppress(OSError):
                os.unlink(target)
    return status or int(not is_saved)


def _reserve(target: str) -> None:
    """Make an empty file, which the step replaces: it would replace anybody's."""
    try:
        created(target).close()
    except FileExistsError:
        raise existing(target) from None
    except OSError:
        return  # it may be that only the node can write there


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
