import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from container_engine.submit import plan_output
from container_engine.submit.context import Context
from container_engine.submit.prepare import Prepared, prepare
from tests.unit import squashfs
from tests.unit.catalog.sites import Site

ANEW = "planned anew"


class User:
    """A user with a home, an image and two directories of EDFs, who plans repeatedly."""

    def __init__(self, home: Path, program: Path) -> None:
        self.home, self.program = home, program
        self.first, self.second = home / "first", home / "second"
        self.cwd, self.prefix = home / "cwd", home / "prefix"
        for directory in (self.first, self.second, self.cwd, self.prefix):
            directory.mkdir()
        self.image = squashfs.make(home / "i.sqsh", {"etc/environment": "FROM=inside\n"})
        self.env = {
            "HOME": str(home),
            "EDF_PATH": f"{self.first}:{self.second}",
            "PATH": os.environ["PATH"],
            "SCRATCH": "/scratch/me",
        }
        self.write(self.second / "e.toml", 'workdir = "${SCRATCH}"')

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'image = "{self.image}"\n{text}\n')

    def site_file(self, name: str) -> Path:
        """Return the path of a file of the site's, in a directory that exists."""
        path = self.prefix / "etc/container-engine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def context(self, later_s: float = 10) -> Context:
        """Return the context of a process that starts `later_s` from now.

        By default all files have settled by then.
        """
        started_ns = time.time_ns() + int(later_s * 1e9)
        context = Context(self.env, str(self.cwd), os.geteuid(), str(self.prefix), started_ns)
        return context._replace(site_read=[])  # read once, as by every command

    def plan(self, name: str = "e", later_s: float = 10) -> str:
        """Plan, cache the plan and return it as it is printed."""
        prepared = self.prepared(name, later_s)
        return "".join([prepared.head, *prepared.parts])

    def prepared(self, name: str = "e", later_s: float = 10) -> Prepared:
        """Plan, and cache the plan."""
        context = self.context(later_s)
        prepared = plan_output.with_digest(prepare(name, context), name, context)
        plan_output.write(prepared, plan_output.request(name, context.cwd), context)
        return prepared

    def recalled(self, name: str = "e") -> str | None:
        """Return the cached plan, or None if a new one is needed."""
        told = self.told(["--for", "srun", "--", name])
        return None if told is None else told[1].decode()

    def told(self, words: Sequence[str | bytes]) -> tuple[bytes, bytes] | None:
        """Return what the installed program prints, or None if it starts Python to plan again."""
        program = self.installed()
        done = subprocess.run(
            [program, *words], env=self.env, cwd=self.cwd, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return None if done.stdout.decode() == f"{ANEW}\n" else (done.stderr, done.stdout)

    def installed(self) -> Path:
        """Install the program that recalls plans, unless that was done; return its path."""
        place = self.prefix / "libexec/container-engine"
        if not place.exists():
            place.mkdir(parents=True)
            shutil.copy(self.program, place / "ce-start")
            (place / "plan").symlink_to("ce-start")
            python = self.prefix / "libexec/python3"
            python.write_text(f"#!/bin/sh\necho '{ANEW}'\n")
            python.chmod(0o755)
        return place / "plan"

    def answers(self) -> list[Path]:
        return sorted((self.home / ".cache/container-engine/plans").iterdir())


@pytest.fixture
def user(tmp_path: Path, need_tool: Callable[[str], str], ce_start: Path) -> User:
    need_tool("mksquashfs")
    need_tool("unsquashfs")
    return User(tmp_path, ce_start)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
