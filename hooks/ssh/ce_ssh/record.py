"""Write and read the records of how the ssh servers of a user's steps are reached.

A directory per job, with one per step in it, is in the user's cache directory, which login and
compute nodes share. Only the user can read it. It has names, ports and public keys, but no secret.
A requeued job has directories of its own, STEP@RUN: a node that lost its power has removed nothing.
"""

from __future__ import annotations

import os

from container_engine.base.files import (
    OTHERS_WRITE,
    is_own_directory,
    names_in,
    user_directory,
)
from container_engine.node.report.trace import open_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

HOST_KEY_ALIAS = "container-engine"
PORT_ENDING, KEY_ENDING = ".port", ".known_hosts"
_DRAFT = ".new"
_RUN = "@"
_TRIES = 10


def root(environment: Mapping[str, str], home: str) -> str:
    """Return the directory of all steps' records."""
    cache = user_directory("XDG_CACHE_HOME", ".cache", {**environment, "HOME": home})
    return f"{cache}/container-engine/hooks/ssh"


def of_step(environment: Mapping[str, str]) -> str:
    """Return a step's directory: JOB/STEP, JOB/STEP@RUN; outside a step with this process's ID."""
    job = environment.get("SLURM_JOB_ID", "")
    step = environment.get("SLURM_STEP_ID", "")
    if not job.isdigit():
        return f"run-{os.getpid()}/0"
    run = environment.get("SLURM_RESTART_COUNT", "")
    again = f"{_RUN}{run}" if run.isdigit() else ""
    return f"{job}/{step if step.isdigit() else f'run-{os.getpid()}'}{again}"


def prepare(directory: str, node: str) -> bool:
    """Make the step's directory; return False if that fails or other users can write to it.

    They could redirect the owner's logins. The directory gets a file of this node, since the end of
    another node's container removes an empty one.
    """
    for _ in range(_TRIES):
        try:
            for path in (os.path.dirname(directory), directory):
                os.makedirs(path, mode=0o700, exist_ok=True)
                os.close(open_own(path))
            _create(f"{directory}/{node}{PORT_ENDING}{_DRAFT}", b"")
        except FileNotFoundError:
            continue  # another node removed the directory in between
        except OSError:
            return False
        return True
    return False


def leftovers(directory: str, node: str) -> list[str]:
    """Return the files to remove with this node's container, and the directories if empty then."""
    names = (PORT_ENDING, PORT_ENDING + _DRAFT, KEY_ENDING, KEY_ENDING + _DRAFT)
    return [*(f"{directory}/{node}{name}" for name in names), directory, os.path.dirname(directory)]


def write(directory: str, node: str, line: str, host_key: str) -> None:
    """Write how this node's server is reached: `PORT ADDRESS USER KEYFILE`. Raise OSError."""
    _write(f"{directory}/{node}{KEY_ENDING}", f"{HOST_KEY_ALIAS} {host_key}\n")
    _write(f"{directory}/{node}{PORT_ENDING}", line + "\n")


class Server:
    """One node's record: how its server is reached, and its key as a line of known_hosts."""

    def __init__(self, directory: str, node: str) -> None:
        """Read the record. Raise OSError or ValueError if it is missing or cut short."""
        job, step = directory.rsplit("/", 2)[1:]
        self.step, self.node = f"{job}.{step.partition(_RUN)[0]}", node
        self.known_hosts = f"{directory}/{node}{KEY_ENDING}"
        with open(f"{directory}/{node}{PORT_ENDING}", encoding="utf-8") as file:
            port, self.address, self.user, self.key_file = file.read().rstrip("\n").split(" ", 3)
        with open(self.known_hosts, encoding="ascii") as file:
            self.host_key = file.read().partition(" ")[2].rstrip("\n")
        self.port = int(port)


def servers(records: str, job: str) -> list[Server]:
    """Return the servers of a job, or of one of its steps (JOB.STEP), ordered by step and node.

    Those of earlier runs of a requeued job are left out.
    """
    job, _dot, wanted = job.partition(".")
    found = []
    place = f"{records}/{job}"
    steps = names_in(place) if is_own_directory(place, OTHERS_WRITE) else []
    newest = max(map(_run_of, steps), default=0)
    for step in sorted(steps, key=_in_order):
        if _run_of(step) != newest or wanted not in ("", step.partition(_RUN)[0]):
            continue
        directory = f"{place}/{step}"
        if not is_own_directory(directory, OTHERS_WRITE):
            continue
        nodes = [name for name in names_in(directory) if name.endswith(PORT_ENDING)]
        for name in nodes:
            try:
                found.append(Server(directory, name.removesuffix(PORT_ENDING)))
            except (OSError, ValueError):
                continue  # the server is just ending
    return found


def _run_of(step: str) -> int:
    run = step.partition(_RUN)[2]
    return int(run) if run.isdigit() else 0


def _in_order(step: str) -> tuple[int, str]:
    step = step.partition(_RUN)[0]
    return (int(step), "") if step.isdigit() else (1 << 62, step)


def _create(path: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def _write(path: str, text: str) -> None:
    """Write atomically: a reader sees all of the text or nothing."""
    _create(path + _DRAFT, text.encode("utf-8", "surrogateescape"))
    os.rename(path + _DRAFT, path)
