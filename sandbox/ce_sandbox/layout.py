"""Paths of the sandbox: everything is below one directory."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_DIR = "/var/lib/ce-sandbox"
USERS = ("ce-alice", "ce-bob")
PROJECT_GROUP = "ce-project"
PROJECT_MEMBERS = ("ce-alice",)
MAX_NODES = 64


class SandboxError(Exception):
    """A failure of the sandbox: one line, and optionally a hint at what to do."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Layout:
    """The paths below one sandbox directory (absolute, without symbolic links)."""

    dir: Path

    @property
    def etc(self) -> Path:
        return self.dir / "etc"

    @property
    def slurm_conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def cgroup_conf(self) -> Path:
        return self.etc / "cgroup.conf"

    @property
    def plugstack(self) -> Path:
        return self.etc / "plugstack.conf"

    @property
    def site_edfs(self) -> Path:
        """The EDFs that every user finds by name."""
        return self.etc / "edf"

    @property
    def munge_key(self) -> Path:
        return self.etc / "munge.key"

    @property
    def munge_socket(self) -> Path:
        return self.dir / "run" / "munge.socket"

    @property
    def run(self) -> Path:
        return self.dir / "run"

    @property
    def log(self) -> Path:
        return self.dir / "log"

    @property
    def state(self) -> Path:
        return self.dir / "state"

    @property
    def spool(self) -> Path:
        return self.dir / "spool"

    @property
    def tmp(self) -> Path:
        return self.dir / "tmp"

    @property
    def images(self) -> Path:
        return self.dir / "images"

    @property
    def cache(self) -> Path:
        return self.dir / "cache"

    @property
    def prefix(self) -> Path:
        """The directory into which `make install` puts the engine for the cluster."""
        return self.dir / "prefix"

    @property
    def plugin(self) -> Path:
        return self.prefix / "lib" / "slurm" / "container_engine.so"

    @property
    def epilog(self) -> Path:
        return self.prefix / "libexec" / "container-engine" / "epilog"

    @property
    def daemons_environment(self) -> Path:
        """A file with additional environment variables for the daemons."""
        return self.prefix / "lib" / "slurm" / "daemons.env"

    @property
    def site_config(self) -> Path:
        return self.prefix / "etc" / "container-engine" / "config.toml"

    def home(self, user: str) -> Path:
        return self.dir / "home" / user


def from_environment(env: Mapping[str, str]) -> Layout:
    """Return the sandbox that `CE_SANDBOX_DIR` names, or else the default one."""
    return Layout(Path(env.get("CE_SANDBOX_DIR") or DEFAULT_DIR).resolve())
