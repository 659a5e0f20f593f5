"""Record what a named container of a job was made from, for steps that give its name alone.

A record is a file of the user, ~/.local/state/container-engine/names/JOB/NAME, with the
environment and the image of the last step that gave them, and the job's run. The nodes check that
the name exists there, and that its image is the same. One more tells which images the job's first
steps have copied (tools/staging.py).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from container_engine.base.files import (
    OTHERS_WRITE,
    is_own_directory,
    make_own,
    write_private,
)
from container_engine.edf.locate import is_path
from container_engine.edf.names import is_step
from container_engine.plan.site_context import read_name
from container_engine.submit.context import Options

_PLACE = ".local/state/container-engine/names"
# in place of JOB: a step that srun runs outside of a job is planned before it has one
_NO_JOB = "new"
# the number of a requeued job's run; a job's first run has none
RUN = "SLURM_RESTART_COUNT"
# the record of the images that the job has in its nodes' memory; no name of a container
COPIES = ".copies"
_MAX_AGE_S = 30 * 86400


class Request(NamedTuple):
    """An environment, or None, and the options over it. `consulted` are files it depends on."""

    environment: str | None
    options: Options
    consulted: tuple[str, ...] = ()


def completed(options: Options, env: Mapping[str, str], traces: str = "") -> Request:
    """Return the request for `options`, completed by the container that they name.

    What is added are the environment and the image of that container.

    `traces` is the directory of the user's traces, for a container whose only name is JOB.STEP.
    Outside of a job, the request can only join a running container.
    """
    name = _name(options, env)
    # an empty image is given, too, and is refused later
    if not name or options.image(env) is not None:
        return Request(None, options)
    found = next(_candidates(name, env), None)
    if found is None and is_step(name):
        return _of_step(name, options, traces)
    if found is None:
        return Request(None, options, tuple(filter(None, [record_of(name, env)])))
    try:
        record = json.loads(read(found))
        environment, image, run = record["environment"], record["image"], record.get("run", "")
    except (ValueError, KeyError, TypeError):
        return Request(None, options, (found,))
    # a requeued job has none of the containers of its earlier runs; `ce save` has no run's number
    if env.get(RUN, run) != run:
        return Request(None, options, (found,))
    # outside of a job it may be the record of another one than srun's --jobid: it must make nothing
    only_joins = "" if env.get("SLURM_JOB_ID", "").isdigit() else f"{name}:exec"
    return Request(environment, options.with_more(image=image, container=only_joins), (found,))


def _of_step(name: str, options: Options, traces: str) -> Request:
    """Return the request with the image of the running step JOB.STEP, as its trace has it.

    Traces of other users are ignored: anybody can put one into a directory that users share.
    """
    place, image = f"{traces}/{name}", ""
    own = is_own_directory(place, OTHERS_WRITE)
    with suppress(OSError, ValueError, KeyError, TypeError):
        for file in sorted(os.listdir(place)) if own else ():
            for line in read(f"{place}/{file}").splitlines() if file.endswith(".json") else ():
                document = json.loads(line)
                image = document["image"]["path"] if "version" in document else image
    if image.startswith("/"):
        options = options.with_more(image=image, container=f"{name}:exec")
    return Request(None, options, (place,))


def record(
    name: str, environment: str | None, options: Options, env: Mapping[str, str], cwd: str
) -> tuple[str, ...]:
    """Record what the container of this name is made from; "" is a container without a name.

    Return the record's path, if any: a cached plan is valid only while the record is unchanged.
    """
    image = options.image(env) or ""
    path = record_of(name, env) if name else ""
    if not path or (environment is None and not image):
        return ()
    # what is expanded first, as in ~/x.toml, does not begin here
    if environment is not None and is_path(environment) and environment[:1] not in "~$":
        environment = os.path.normpath(os.path.join(cwd, environment))
    if image.startswith("."):
        image = os.path.normpath(os.path.join(cwd, image))
    made_from = {"environment": environment, "image": image, "run": env.get(RUN, "")}
    text = json.dumps(made_from)
    write(path, text)
    return (path,)


def write(path: str, text: str) -> None:
    """Write a record, unless it has this text. Failure is no error."""
    with suppress(OSError):
        _forget_old(os.path.dirname(os.path.dirname(path)))
        make_own(os.path.dirname(path))
        if read(path) != text:
            write_private(os.path.dirname(path), os.path.basename(path), text.encode())


def read(path: str) -> str:
    """Return the text of a record, "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def record_of(name: str, env: Mapping[str, str]) -> str:
    """Return the path of the job's record of this name, "" if HOME is not set to a path."""
    home, job = env.get("HOME", ""), env.get("SLURM_JOB_ID", "")
    if not home.startswith("/"):
        return ""
    return f"{home}/{_PLACE}/{job if job.isdigit() else _NO_JOB}/{name}"


def _name(options: Options, env: Mapping[str, str]) -> str:
    named = read_name(options.container(env))
    return named[0] if named is not None else ""


def _candidates(name: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield existing records: the job's; outside of a job, those of all jobs, the newest first."""
    path = record_of(name, env)
    if not path or env.get("SLURM_JOB_ID", "").isdigit():
        yield from filter(os.path.exists, [path])
        return
    place = os.path.dirname(os.path.dirname(path))
    with suppress(OSError):
        jobs = (f"{place}/{job}/{name}" for job in os.listdir(place))
        yield from sorted(filter(os.path.exists, jobs), key=os.path.getmtime, reverse=True)


def _forget_old(place: str) -> None:
    with suppress(OSError):
        for job in os.scandir(place):
            if job.stat().st_mtime > time.time() - _MAX_AGE_S:
                continue
            for one in os.scandir(job.path):
                os.unlink(one.path)
            os.rmdir(job.path)
