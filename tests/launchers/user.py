"""An ordinary user of the cluster, who writes a program, runs it and waits for jobs."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.launchers.tools import installed
from tests.slurm.polling import until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.slurm.cluster import Cluster

PROGRAMS = Path(__file__).parent / "programs"
PAGES = Path(__file__).parents[2] / "docs/howto"
# What each task prints: its number, its node, its container's system.
_REPORT = re.compile(r"task (\d+) on (n\d+) in (\S+)")
# What a task prints where it needs no Python.
SAY = (
    "sh",
    "-c",
    '. /etc/os-release; echo "task $SLURM_PROCID on $SLURMD_NODENAME in $ID"',
)


@dataclass(frozen=True)
class User:
    """A user with a directory; `launcher` names are those of requirements/NAME.txt."""

    cluster: Cluster
    directory: Path

    @property
    def image(self) -> Path:
        return self.cluster.image("demo")

    def mounts(self, launcher: str) -> str:
        """Return the mounts that tasks of a launcher need: its installation, and our directory."""
        return f"{installed(launcher)},{self.directory}"

    def environment(self, launcher: str) -> str:
        """Write an environment with the launcher's `mounts`; return its path."""
        mounts = self.mounts(launcher).replace(",", '", "')
        path = self.directory / "launcher.toml"
        path.write_text(f'image = "{self.image}"\nmounts = ["{mounts}"]\nwritable = true\n')
        path.chmod(0o644)
        return str(path)

    def from_page(self, file: str, page: str = "python-api.md") -> None:
        """Put a file of a page, that on the engine's API, into the directory."""
        text = (PAGES / page).read_text()
        [text] = re.findall(rf"^```python\n# {file}\n(.*?)^```$", text, re.M | re.S)
        (self.directory / file).write_text(text)

    def with_engine(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables with which a Python imports the installation's packages, too."""
        [packages] = self.cluster.prefix.glob("lib/python3*/site-packages")
        return {**env, "PYTHONPATH": f"{self.directory}:{packages}"}

    def python(
        self,
        launcher: str,
        program: str,
        *words: str,
        env: Mapping[str, str] | None = None,
        engine: bool = False,
    ) -> str:
        """Run a program of this directory with the launcher's Python; return all it printed."""
        programs = installed(launcher) / "bin"
        env = {"PATH": f"{programs}:{self.path()}", **(env or {})}
        env = self.with_engine(env) if engine else env
        copy = self.directory / program
        copy.write_text((PROGRAMS / program).read_text())
        return self.run(str(programs / "python"), str(copy), *words, env=env)

    def run(self, *words: str, env: Mapping[str, str] | None = None, timeout: float = 240) -> str:
        """Run a command in the directory; return all it printed. It must succeed."""
        env = {"PATH": self.path(), **(env or {})}
        done = self.cluster.run(list(words), env=env, timeout=timeout, cwd=self.directory)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def path(self) -> str:
        """Return the PATH of a user who has `enroot`, and the commands of `command`."""
        compat = self.cluster.prefix / "libexec/container-engine/compat"
        return f"{self.directory}/commands:{compat}:{self.cluster.login()['env']['PATH']}"

    def command(self, name: str, script: str) -> None:
        """Give the user a command that the host lacks."""
        path = self.directory / "commands" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def wait_for_jobs(self, within_s: float = 120) -> None:
        """Wait until none of the user's jobs is queued or runs."""
        login = self.cluster.login()

        def none_left() -> bool:
            queue = ["squeue", "--me", "--noheader"]
            done = subprocess.run(queue, **login, capture_output=True, text=True)
            return done.returncode == 0 and not done.stdout.strip()

        until("the end of the jobs", none_left, within_s)

    def files(self, pattern: str) -> str:
        """Return the text of all files below the directory that match."""
        found = sorted(self.directory.rglob(pattern))
        return "".join(path.read_text(errors="replace") for path in found if path.is_file())


def tasks(text: str) -> list[tuple[str, str, str]]:
    """Return (number, node, system) of each task that reported itself, in order."""
    return sorted(set(_REPORT.findall(text)))


def two_nodes(system: str = "ce-demo") -> list[tuple[str, str, str]]:
    """Return what a task on each of two nodes reports."""
    return [("0", "n1", system), ("1", "n2", system)]
