"""Handle of the cluster tests: runs commands as users of the sandbox."""

import os
import pwd
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ce_sandbox import images, run
from ce_sandbox.layout import Layout, from_environment
from tests.piped import Piped
from tests.slurm import procfs

ROOT = Path(__file__).resolve().parents[2]
ALICE, BOB = from_environment(os.environ).users
Completed = subprocess.CompletedProcess[str]
_QUEUED = re.compile(
    r"^srun: (job \d+ (queued and waiting for|has been allocated) resources"
    r"|Job \d+ step creation temporarily disabled, retrying .*|Step created for .*)\n",
    re.MULTILINE,
)


def as_if_at_once(err: str) -> str:
    """Remove the lines that srun prints only while an earlier job or step is still ending."""
    return _QUEUED.sub("", err)


def sandbox(*argv: str, timeout: float = 120) -> Completed:
    """Run one of the sandbox's own commands: `sandbox("up", "-n", "2")`."""
    return subprocess.run(
        [str(ROOT / "sandbox" / argv[0]), *argv[1:]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def start_again(node: str) -> None:
    """Restart a node's slurmd, which then reads its configuration."""
    done = sandbox("node", "--again", node)
    assert done.returncode == 0, done.stderr


def causes(done: Completed) -> list[str]:
    """Return the engine's error lines; none of them may come through Slurm."""
    assert "error: container_engine: " not in done.stderr
    return [line for line in done.stderr.splitlines() if "ce: error: " in line]


class Login(TypedDict):
    """Arguments of `subprocess.Popen` that start a process as a user."""

    user: int
    group: int
    extra_groups: list[int]
    env: dict[str, str]
    umask: int


@dataclass(frozen=True)
class Cluster:
    """A running cluster. `scratch` is a directory that every user can read.

    `records` are Podman's directories that were in
    the users' homes before the tests.
    """

    dir: Path
    nodes: int
    scratch: Path
    records: frozenset[Path] = frozenset()

    @property
    def prefix(self) -> Path:
        return self.dir / "prefix"

    def home(self, user: str = ALICE) -> Path:
        return Path(pwd.getpwnam(user).pw_dir)

    def module(self, path: str) -> Path:
        """Return the installed file of a module; `path` is relative to container_engine/."""
        packages = "lib/python3*/site-packages/container_engine"
        (found,) = self.prefix.glob(f"{packages}/{path}")
        return found

    def image(self, name: str) -> Path:
        """Return the image of this name, built if necessary (see sandbox/make-image -h)."""
        return images.provide(Layout(self.dir), name)

    def login(
        self,
        user: str = ALICE,
        env: Mapping[str, str] | None = None,
        kept: Mapping[str, str] | None = None,
    ) -> Login:
        """Return how to run a command as `user`, as `sandbox/run` does, without its Python.

        `env` is added to the login's variables. Of the caller's variables in `kept`, the login has
        those that `sandbox/run` passes on.
        """
        entry = pwd.getpwnam(user)
        own = run.environment(Layout(self.dir), entry, self.environment() | dict(kept or {}))
        return Login(
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=os.getgrouplist(user, entry.pw_gid),
            env=own | dict(env or {}),
            umask=0o022,
        )

    @contextmanager
    def in_the_home(self, name: str, user: str = ALICE) -> Iterator[Path]:
        """Yield a new directory in the home and remove it at the end.

        The directory, and each parent that had to be created, belongs to the user.
        """
        own, entry = self.home(user) / name, pwd.getpwnam(user)
        made = [own, *(path for path in own.parents if not path.exists())]
        own.mkdir(parents=True)
        for path in made:
            os.chown(path, entry.pw_uid, entry.pw_gid)
        try:
            yield own
        finally:
            shutil.rmtree(own)

    def popen(
        self,
        argv: Sequence[str],
        user: str = ALICE,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Piped:
        """Start a command with pipes, for tests that send signals; the pid is the command's."""
        return Piped(
            argv,
            **self.login(user, env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd or self.home(user),
            start_new_session=True,
        )

    def run(
        self,
        argv: Sequence[str],
        user: str = ALICE,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002  # as subprocess.run calls it
        timeout: float = 60,
        cwd: Path | None = None,
    ) -> Completed:
        """Run a command as `user`, in the user's home. A command that hangs fails the test."""

        def hung() -> str:
            seen = procfs.waiting(pwd.getpwnam(user).pw_uid)
            self.cancel_all(user)
            return seen

        with self.popen(argv, user, env, cwd) as process:
            done = process.finish(input or "", timeout, hung)
        done.stderr = as_if_at_once(done.stderr)
        return done

    def srun(
        self,
        *args: str,
        user: str = ALICE,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002  # as subprocess.run calls it
        timeout: float = 60,
    ) -> Completed:
        return self.run(["srun", *args], user, env, input, timeout)

    def write(self, text: str, name: str = "", mode: int = 0o644, owner: str | None = None) -> Path:
        """Write a new file in the scratch directory (as root's if no owner is given)."""
        path = self.scratch / (name or uuid.uuid4().hex)
        path.write_text(text)
        path.chmod(mode)
        if owner is not None:
            entry = pwd.getpwnam(owner)
            os.chown(path, entry.pw_uid, entry.pw_gid)
        return path

    def edf(self, text: str = "", image: str | None = "demo", name: str = "") -> str:
        """Write an EDF and return its path; `image` names an image of the sandbox."""
        first = f'image = "{self.image(image)}"\n' if image is not None else ""
        return str(self.write(first + text, f"{name or uuid.uuid4().hex}.toml"))

    def cancel_all(self, user: str) -> None:
        subprocess.run(["scancel", "-u", user], **self.login(user), check=False)

    def environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "CE_SANDBOX_DIR": str(self.dir), "LANG": "C.UTF-8"}
