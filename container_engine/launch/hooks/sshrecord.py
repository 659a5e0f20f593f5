"""Where the ssh servers of a user's steps say how they are reached.

A directory per step in the user's cache directory, which login and compute nodes share, readable by
the user alone. It says names, ports and public keys; nothing in it opens anything.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

HOST_KEY_ALIAS = "container-engine"
PORT_ENDING, KEY_ENDING = ".port", ".known_hosts"


def root(environment: Mapping[str, str], home: str) -> str:
    """The directory of all steps' records."""
    cache = environment.get("XDG_CACHE_HOME", "")
    if not cache.startswith("/"):
        cache = f"{home}/.cache"
    return f"{cache}/container-engine/ssh"


def of_step(environment: Mapping[str, str]) -> str:
    """The name of a step's directory: JOB.STEP; without Slurm, the number of this process."""
    job = environment.get("SLURM_JOB_ID", "")
    step = environment.get("SLURM_STEP_ID", "")
    if not job.isdigit():
        return f"run-{os.getpid()}"
    return f"{job}.{step}" if step.isdigit() else f"{job}.run-{os.getpid()}"


def prepare(directory: str) -> bool:
    """Makes the step's directory; False where there is no place for it."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


def leftovers(directory: str, node: str) -> list[str]:
    """What goes with this node's container; the directory with that of the last node."""
    return [f"{directory}/{node}{PORT_ENDING}", f"{directory}/{node}{KEY_ENDING}", directory]


def write(directory: str, node: str, line: str, host_key: str) -> None:
    """Says how this node's server is reached: `PORT ADDRESS USER KEYFILE`. Raises OSError."""
    _write(f"{directory}/{node}{KEY_ENDING}", f"{HOST_KEY_ALIAS} {host_key}\n")
    _write(f"{directory}/{node}{PORT_ENDING}", line + "\n")


class Server:
    """What a node left: how its server is reached, and its key as a line of known_hosts."""

    __slots__ = ("address", "host_key", "key_file", "known_hosts", "node", "port", "step", "user")

    def __init__(self, directory: str, node: str) -> None:
        """Raises OSError or ValueError for a record that is not there or cut short."""
        self.step, self.node = os.path.basename(directory), node
        self.known_hosts = f"{directory}/{node}{KEY_ENDING}"
        with open(f"{directory}/{node}{PORT_ENDING}", encoding="utf-8") as file:
            port, self.address, self.user, self.key_file = file.read().rstrip("\n").split(" ", 3)
        with open(self.known_hosts, encoding="ascii") as file:
            self.host_key = file.read().partition(" ")[2].rstrip("\n")
        self.port = int(port)


def servers(records: str, job: str) -> list[Server]:
    """Those of a job, or of one of its steps (JOB.STEP), by step and node."""
    found = []
    for step in sorted(_entries(records)):
        if job not in (step, step.partition(".")[0]):
            continue
        directory = f"{records}/{step}"
        nodes = [name for name in sorted(_entries(directory)) if name.endswith(PORT_ENDING)]
        for name in nodes:
            try:
                found.append(Server(directory, name.removesuffix(PORT_ENDING)))
            except (OSError, ValueError):
                continue  # one that ends just now
    return found


def _entries(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _write(path: str, text: str) -> None:
    """Whoever reads it sees all of it or nothing."""
    draft = f"{path}.new"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, text.encode("utf-8", "surrogateescape"))
    finally:
        os.close(fd)
    os.rename(draft, path)
