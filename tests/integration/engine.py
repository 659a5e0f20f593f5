"""The installed engine with real Podman, as an ordinary user without Slurm runs it."""

import fcntl
import json
import os
import pwd
import subprocess
import termios
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ce_sandbox import images
from ce_sandbox.layout import Layout, from_environment
from tests.piped import Piped
from tests.slurm import procfs

ROOT = Path(__file__).resolve().parents[2]
ALICE = from_environment(os.environ).users[0]
PATH = "/usr/local/bin:/usr/bin:/bin"
Completed = subprocess.CompletedProcess[str]


def without_remedy(stderr: str) -> str:
    """Return the one line of an error without the lines of hint, page and details below it."""
    beside = ("ce: also: ", "ce: hint: ", "ce: see: ", "ce: details: ")
    lines = [line for line in stderr.splitlines() if not line.startswith(beside)]
    assert len(lines) == 1, stderr
    return lines[0]


@dataclass(frozen=True)
class Person:
    """The user who runs commands.

    A uid without a name has no entry in /etc/passwd and /etc/subuid.
    """

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: Path


def person(name: str) -> Person:
    entry = pwd.getpwnam(name)
    groups = os.getgrouplist(name, entry.pw_gid)
    return Person(entry.pw_uid, entry.pw_gid, tuple(groups), Path(entry.pw_dir))


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@dataclass(frozen=True)
class Engine:
    """An installed engine and its user.

    `scratch` is the test's own directory, which everybody can read and `user` can write.
    """

    dir: Path
    prefix: Path
    scratch: Path
    user: Person
    site: Path | None = None

    def image(self, name: str) -> Path:
        """Return an image of the sandbox; build it if it does not exist."""
        return images.provide(Layout(self.dir), name)

    def linked_image(self, config: Mapping[str, object], name: str = "busybox") -> Path:
        """Return the image under another name, with this OCI configuration beside it."""
        link = self.scratch / f"{uuid.uuid4().hex}.sqsh"
        link.symlink_to(self.image(name))
        link.with_name(f"{link.name}.json").write_text(json.dumps({"config": config}))
        return link

    def edf(self, text: str = "", image: Path | str = "busybox") -> Path:
        """Write a new EDF; `image` is a path or the name of one of the sandbox's images."""
        path = self.scratch / f"{uuid.uuid4().hex}.toml"
        file = image if isinstance(image, Path) else self.image(image)
        path.write_text(f'image = "{file}"\n{text}\n')
        return path

    def with_site(self, text: str) -> "Engine":
        """Return the engine with other settings of the site."""
        site = self.scratch / f"{uuid.uuid4().hex}.config.toml"
        site.write_text(text)
        site.chmod(0o644)
        return replace(self, site=site)

    def argv(self, edf: Path, *command: str) -> list[str]:
        site = ["--site", str(self.site)] if self.site else []
        return [str(self.prefix / "bin" / "ce"), *site, "run", str(edf), "--", *command]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {"PATH": PATH, "HOME": str(self.user.home), "USER": "me", **(more or {})}

    def popen(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        terminal: int | None = None,
    ) -> Piped:
        """Start a command as the user, in the scratch directory and in a session of its own.

        Its three streams are pipes or `terminal`, which then is its controlling terminal.
        """
        stream = subprocess.PIPE if terminal is None else terminal
        return Piped(
            argv,
            env=self.environment(env),
            cwd=self.scratch,
            stdin=stream,
            stdout=stream,
            stderr=stream,
            text=True,
            start_new_session=True,
            preexec_fn=None if terminal is None else _take_terminal,  # no threads
            user=self.user.uid,
            group=self.user.gid,
            extra_groups=self.user.groups,
        )

    def start(
        self,
        edf: Path,
        *command: str,
        env: Mapping[str, str] | None = None,
        terminal: int | None = None,
    ) -> Piped:
        """Start `ce run EDF -- COMMAND`, whose process becomes the command."""
        return self.popen(self.argv(edf, *command), env, terminal)

    def run(
        self,
        edf: Path,
        *command: str,
        env: Mapping[str, str] | None = None,
        given: str = "",
        timeout: float = 60,
    ) -> Completed:
        """Run `ce run EDF -- COMMAND` to its end, with `given` as its input."""
        with self.start(edf, *command, env=env) as process:
            return process.finish(given, timeout, lambda: procfs.waiting(self.user.uid))

    def output(
        self,
        edf: Path,
        *command: str,
        env: Mapping[str, str] | None = None,
        given: str = "",
    ) -> str:
        """Return the output of a command, which must succeed and print nothing to stderr."""
        done = self.run(edf, *command, env=env, given=given)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    def refusal(self, edf: Path) -> str:
        """Return the one line with which a container is refused; the command must not have run."""
        done = self.run(edf, "echo", "it ran")
        assert done.returncode == 125, (done.stdout, done.stderr)
        assert done.stdout == ""
        line = without_remedy(done.stderr)
        assert line.startswith("ce: error: ")
        return line.removeprefix("ce: error: ")
