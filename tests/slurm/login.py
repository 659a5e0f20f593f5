"""An ssh client outside the containers, with keys of its own: a user's laptop."""

import base64
import contextlib
import glob
import os
import pwd
import re
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.cluster import ALICE, Cluster, Completed
from tests.slurm.job import Job, started
from tests.slurm.polling import until

PORT = 15263
_BEGIN, _END = "variables:", "."
_OPTIONS = ("LogLevel=ERROR", "IdentitiesOnly=yes")
_ANY_HOST = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null")


def make_key(cluster: Cluster, user: str = ALICE) -> Path:
    """Create a key pair of `user`; return the private half, with the public one beside it."""
    path = cluster.scratch / f"key-{uuid.uuid4().hex}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    entry = pwd.getpwnam(user)
    for half in (path, Path(f"{path}.pub")):
        os.chown(half, entry.pw_uid, entry.pw_gid)
    return path


def edf(cluster: Cluster, key: Path | None, more: str = "", image: str = "demo") -> str:
    """Write an environment with the ssh hook; `more` precedes its annotations."""
    named = f'authorize_ssh_key = "{key}.pub"\n' if key else ""
    text = f'{more}\n[annotations.com.hooks.ssh]\nenabled = "true"\n{named}'
    return cluster.edf(text, image=image)


@dataclass(frozen=True)
class Laptop:
    """A client that logs in to port `port` of this machine as `user` with `key`.

    `trust` are the ssh options that say which hosts it accepts.
    """

    cluster: Cluster
    key: Path
    port: int
    user: str = ALICE
    trust: tuple[str, ...] = _ANY_HOST

    def options(self) -> list[str]:
        words = [f"-o{option}" for option in (*_OPTIONS, *self.trust)]
        return ["-i", str(self.key), *words]

    def argv(self, *command: str, more: Sequence[str] = ()) -> list[str]:
        login = ["-p", str(self.port), f"{self.user}@localhost"]
        return ["ssh", *self.options(), *more, *login, *command]

    def ssh(self, *command: str, more: Sequence[str] = ()) -> Completed:
        return self.cluster.run(self.argv(*command, more=more))

    def copy(self, program: str, *words: str) -> Completed:
        """Run scp or sftp; `@` at the start of a word stands for the login."""
        login = f"{self.user}@localhost:"
        argv = [program, *self.options(), "-P", str(self.port)]
        return self.cluster.run([*argv, *(re.sub("^@", login, word) for word in words)])


@contextlib.contextmanager
def step(cluster: Cluster, name: str, *words: str, user: str = ALICE) -> Iterator[Job]:
    """Run a step in the environment `name`: its tasks print "up" and stay.

    The first task prints its variables before, in lines short enough that Slurm keeps them whole
    (up to a kilobyte); `variables` reads them.
    """
    block = f"echo {_BEGIN}; base64 -w 500 /proc/self/environ; echo {_END}"
    script = f"[ $SLURM_PROCID != 0 ] || {{ {block}; }}; echo up; sleep 1000"
    argv = ["srun", *(words or ("-N1",)), f"--environment={name}", "sh", "-c", script]
    with started(cluster, *argv, user=user) as job:
        yield job


def variables(job: Job) -> dict[str, str]:
    """Return the variables that the first task of a `step` has printed."""
    lines = [line for line in job.out.splitlines() if line != "up"]
    block = "".join(lines[lines.index(_BEGIN) + 1 : lines.index(_END)])
    return entries(base64.b64decode(block).decode(), "\0")


def entries(block: str, end: str) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in block.split(end) if "=" in entry)
    return {name: value for name, _equals, value in pairs}


def recorded(cluster: Cluster, job: str, user: str = ALICE) -> dict[str, int]:
    """Return the ports of a job's servers by node, as they are recorded now."""
    found = {}
    records = cluster.home(user) / ".cache/container-engine/hooks/ssh"
    # Not Path.glob, which fails if a step's directory is removed while it searches.
    for file in map(Path, glob.glob(f"{records}/{job}/*/*.port")):
        with contextlib.suppress(FileNotFoundError):
            if text := file.read_text():
                found[file.stem] = int(text.split()[0])
    return found


def ports(cluster: Cluster, job: str, nodes: int | None = 1, user: str = ALICE) -> dict[str, int]:
    """Return the ports once `nodes` of them are recorded, or, if it is None, at least one."""

    def enough() -> dict[str, int] | None:
        found = recorded(cluster, job, user)
        return found if nodes is None or len(found) == nodes else None

    return until(f"the records of job {job}", enough)
