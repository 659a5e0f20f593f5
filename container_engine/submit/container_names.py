"""Remember what a named container of a job was made from, for steps that give its name alone.

A record is a file of the user, ~/.local/state/container-engine/names/JOB/NAME, with the
environment and the image of the last step that gave them. The nodes check that the name exists
there, and that its image is the same.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.private_files import OTHERS_WRITE, is_own_directory, make_own
from container_engine.edf.pyxis_names import PREFIX, VARIABLES_COUNT, is_step
from container_engine.plan.overrides import read_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PLACE = ".local/state/container-engine/names"
_IMAGE, _NAME = "--container-image=", "--container-name="
# in place of JOB: a step that srun runs outside of a job is planned before it has one
_NO_JOB = "new"
_MAX_AGE_S = 30 * 86400


class Request(NamedTuple):
    """An environment, or None, and the options over it. `consulted` are files it depends on."""

    environment: str | None
    words: Sequence[str]
    consulted: tuple[str, ...] = ()


def completed(words: Sequence[str], env: Mapping[str, str], traces: str = "") -> Request:
    """Return the request for `words`, completed by the container that they name.

    What is added are the environment and the image of that container.

    `traces` is the directory of the user's traces, for a container whose only name is JOB.STEP.
    Outside of a job, the request can only join a running container.
    """
    name = _name(words, env)
    # an empty image is given, too, and is refused later
    if not name or _IMAGE in words or _value(words, env, _IMAGE, "IMAGE"):
        return Request(None, words)
    found = next(_candidates(name, env), None)
    if found is None and is_step(name):
        return _of_step(name, words, traces)
    if found is None:
        return Request(None, words, tuple(filter(None, [record_of(name, env)])))
    try:
        record = json.loads(_read(found))
        environment, image = record["environment"], record["image"]
    except (ValueError, KeyError, TypeError):
        return Request(None, words, (found,))
    more = [f"{_IMAGE}{image}"] if image else []
    if not env.get("SLURM_JOB_ID", "").isdigit():
        # this may be the record of another job than srun's --jobid: then it must not make anything
        more.append(f"{_NAME}{name}:exec")
    return Request(environment, [*words, *more], (found,))


def _of_step(name: str, words: Sequence[str], traces: str) -> Request:
    """Return the request with the image of the running step JOB.STEP, as its trace has it.

    Traces of other users are ignored: anybody can put one into a directory that users share.
    """
    place, image = f"{traces}/{name}", ""
    own = is_own_directory(place, OTHERS_WRITE)
    with suppress(OSError, ValueError, KeyError, TypeError):
        for file in sorted(os.listdir(place)) if own else ():
            for line in _read(f"{place}/{file}").splitlines() if file.endswith(".json") else ():
                document = json.loads(line)
                image = document["image"]["path"] if "version" in document else image
    more = [f"{_IMAGE}{image}", f"{_NAME}{name}:exec"] if image.startswith("/") else []
    return Request(None, [*words, *more], (place,))


def record(
    environment: str | None, words: Sequence[str], env: Mapping[str, str], cwd: str
) -> tuple[str, ...]:
    """Record what the container that these options name is made from, if they name one.

    Return the record's path, if any: a remembered plan is valid only while the record is unchanged.
    """
    name = _name(words, env)
    image = _value(words, env, _IMAGE, "IMAGE")
    path = record_of(name, env) if name else ""
    if not path or (environment is None and not image):
        return ()
    if environment is not None and ("/" in environment or environment.endswith(".toml")):
        environment = os.path.normpath(os.path.join(cwd, environment))
    if image.startswith("."):
        image = os.path.normpath(os.path.join(cwd, image))
    text = json.dumps({"environment": environment, "image": image})
    with suppress(OSError):
        _forget_old(os.path.dirname(os.path.dirname(path)))
        make_own(os.path.dirname(path))
        if _read(path) != text:
            with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(f"{path}.{os.getpid()}", path)
    return (path,)


def _read(path: str) -> str:
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


def _name(words: Sequence[str], env: Mapping[str, str]) -> str:
    named = read_name(_value(words, env, _NAME, "NAME"))
    return named[0] if named is not None else ""


def _value(words: Sequence[str], env: Mapping[str, str], option: str, variable: str) -> str:
    given = [word.removeprefix(option) for word in words if word.startswith(option)]
    if given:
        return given[-1]
    return env.get(PREFIX + variable, "") if VARIABLES_COUNT in words else ""


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
