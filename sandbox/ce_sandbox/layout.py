"""Paths of the sandbox: everything is below one directory."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

DEFAULT_DIR = "/var/lib/ce-sandbox"
# The users of the default sandbox; in other sandboxes these names end with the sandbox's number.
USERS = ("ce-alice", "ce-bob")
PROJECT_GROUP = "ce-project"
# A node's processes have some twenty threads; the default of kernel.pid_max is 32768.
MAX_NODES = 1250
# The ports of other sandboxes are from 17100 to 32099, below Linux's ephemeral ports; above those
# are the ports of the one sandbox that may have more nodes than this.
MAX_NODES_AT_ONCE = 98
_OTHERS, _PORTS_EACH, _FIRST_OF_MANY = 150, 100, 61000


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
    def number(self) -> int:
        """Return 0 for the default directory, or else a number from 1 to 150: a hash of the path.

        Sandboxes with different numbers can run at once.
        """
        if self.dir == Path(DEFAULT_DIR).resolve():
            return 0
        return 1 + crc32(os.fsencode(self.dir)) % _OTHERS

    @property
    def users(self) -> tuple[str, str]:
        """Return the two ordinary users' names; the first is in the project's group."""
        alice, bob = (f"{name}-{self.number}" if self.number else name for name in USERS)
        return alice, bob

    @property
    def controller_port(self) -> int:
        return 17000 + _PORTS_EACH * self.number if self.number else 16817

    def first_node_port(self, nodes: int) -> int:
        """Return the port of the first of `nodes` nodes, which the others' follow."""
        if nodes > MAX_NODES_AT_ONCE:
            return _FIRST_OF_MANY
        return self.controller_port + 1 if self.number else 16901

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
