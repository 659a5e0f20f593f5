"""The subject of all advice: a valid environment, and how its author wrote it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from container_engine.base.mounts import is_in
from container_engine.edf.expand import names, scan
from container_engine.edf.model import Edf
from container_engine.edf.show import History
from container_engine.faults.hook_switches import turn_on
from container_engine.plan.model import HookUse
from container_engine.plan.site_context import SiteContext


class Packages(NamedTuple):
    """Python packages in a directory: `kind` is "virtual", "conda" or "" for any other directory.

    `modules` are those of its `files` that `import` opens.
    """

    kind: str
    files: int
    modules: int


class Subject(NamedTuple):
    """A valid environment with its `histories`.

    `hooks` apply to the environment; `site_context` has all that there are. `cwd` and
    `variables` are the caller's. `network` returns the kind of the network file system that has a
    path, "" for none, and `packages` what is in a directory of Python packages.
    """

    edf: Edf
    histories: tuple[History, ...]
    hooks: tuple[HookUse, ...]
    site_context: SiteContext
    cwd: str
    variables: Mapping[str, str]
    network: Callable[[str], str]
    packages: Callable[[str], Packages | None]

    @property
    def has_image(self) -> bool:
        """Return whether the environment names an image, so that it has a container."""
        return self.edf.image_origin is not None and self.edf.image != ""

    @property
    def scratch(self) -> str:
        """Return the caller's SCRATCH, "" if there is none."""
        return self.variables.get("SCRATCH", "").rstrip("/")

    @property
    def home(self) -> str:
        """Return the caller's home, "" if there is none."""
        return self.variables.get("HOME", "").rstrip("/")

    def network_of(self, path: object) -> str:
        """Return the kind of the network file system that has an absolute path, else ""."""
        return self.network(path) if isinstance(path, str) and path.startswith("/") else ""

    def is_mounted(self, path: str) -> bool:
        """Check whether a mount, of the environment or the site, may show this path."""
        every = (*self.edf.mounts, *self.site_context.wide.mounts)
        # a target that only the node knows may well show it
        return any(
            not isinstance(mount.target, str)
            or (mount.kind == "bind" and is_in(path, mount.target))
            for mount in every
        )

    def annotation(self, key: str) -> str | None:
        return next((entry.value for entry in self.edf.annotations if entry.key == key), None)

    def switched(self, hook: str) -> str | None:
        """Return what the environment says of a hook: "true" if it enables it, None for nothing."""
        known = self.site_context.hooks.get(hook)
        return None if known is None else self.annotation(known.switch)

    def turn_on(self, hook: str) -> str:
        """Return the remedy that enables a hook."""
        known = self.site_context.hooks.get(hook)
        if known is None or known.data.turned_off:
            return f"ask the administrator for the hook {hook}"
        return turn_on(known.switch)

    def profiles(self, hook: str) -> Mapping[str, Mapping[str, str]]:
        """Return the named sets of variables of a hook."""
        known = self.site_context.hooks.get(hook)
        return {} if known is None else known.data.profiles

    def below(self, key: str) -> list[tuple[str, History]]:
        """Return the values of a table or array with their names in it (`PATH` of `env.PATH`)."""
        return [
            (history.key[len(key) + 1 :], history)
            for history in self.histories
            if history.key.startswith((f"{key}.", f"{key}["))
        ]


def is_below(path: str, directory: str) -> bool:
    return path != directory and is_in(path, directory)


def written(history: History) -> str:
    """Return the string as written in the file, "" for a boolean."""
    return history.effective.written or ""


def variables_in(history: History) -> set[str]:
    """Return the names of all variables in the string as written."""
    return names(scan(written(history)))
