"""All that a plan depends on besides EDF and image: what the site has and decides. Pure.

Mounts, devices and variables that it adds to every environment are expanded here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.run_check import ListedCheck, faults
from container_engine.base.toml_positions import Fault
from container_engine.catalog.load import Hook
from container_engine.edf.entries import parse_device, parse_mount
from container_engine.edf.expand import ExpandError, Scope, expand, pieces
from container_engine.edf.model import Device, Edf, EnvEntry, Mount, Origin
from container_engine.plan.hooks import Added, Entries
from container_engine.plan.model import HookUse, Run
from container_engine.site.load import Configuration, FaultsError
from container_engine.site.model import SiteConfig


class SiteOrigin(Origin):
    """A key in a configuration file of the site; its line is not known, but the file is short."""

    def __init__(self, file: str, line: int, key: str) -> None:
        super().__init__(file, line)
        self.key = key

    def __str__(self) -> str:
        return f"site: {self.file}:{self.key}"


class Sitewide(NamedTuple):
    """The site's entries, expanded like the strings of an EDF, in the order of writing."""

    mounts: tuple[Mount, ...]
    devices: tuple[Device, ...]
    env: tuple[EnvEntry, ...]
    checks: tuple[Run, ...] = ()


def sitewide(config: Configuration, env: Mapping[str, str]) -> Sitewide:
    """Return the entries of `config`, expanded with the variables `env`.

    Only single names of `env` are looked up. Raise FaultsError with every entry that cannot be
    used.
    """
    reader = _Reader(config, env)
    found = Sitewide(
        tuple(reader.mounts(config.settings.mounts)),
        tuple(reader.devices(config.settings.devices)),
        tuple(reader.env(config.settings.env)),
        tuple(reader.checks(config.settings.checks)),
    )
    if reader.faults:
        raise FaultsError(reader.faults, config.origins)
    return found


def add(edf: Edf, wide: Sitewide) -> Edf:
    """Return the EDF with the site's entries added; if both name a thing, the EDF's entry wins."""
    mounts = {mount.target: mount for mount in (*wide.mounts, *edf.mounts)}
    devices = {device.name: device for device in (*edf.devices, *wide.devices)}
    env = {entry.name: entry for entry in (*wide.env, *edf.env)}
    return replace(
        edf,
        mounts=tuple(mounts.values()),
        devices=tuple(devices.values()),
        env=tuple(entry for _name, entry in sorted(env.items())),
    )


class _Reader:
    """A reader of the entries, key by key, which collects their faults."""

    def __init__(self, config: Configuration, env: Mapping[str, str]) -> None:
        self._config = config
        self._scope = Scope(env, {}, config.settings.is_deferred)
        self.faults: list[Fault] = []

    def mounts(self, written: tuple[str, ...]) -> Iterator[Mount]:
        for index, text in enumerate(written):
            origin = self._origin(f"mounts[{index}]")
            try:
                if text.startswith("."):
                    message = f"'{text}' is relative to the caller's directory"
                    raise UserError(message, see="site-configuration")
                yield parse_mount(pieces(text, self._scope), "/", origin)
            except UserError as error:
                self._fault(origin, error)

    def devices(self, written: tuple[str, ...]) -> Iterator[Device]:
        for index, text in enumerate(written):
            origin = self._origin(f"devices[{index}]")
            try:
                yield parse_device(expand(text, self._scope), origin)
            except UserError as error:
                self._fault(origin, error)

    def env(self, written: Mapping[str, str]) -> Iterator[EnvEntry]:
        for name, text in written.items():
            origin = self._origin(f"env.{name}")
            try:
                if not name or "=" in name:
                    message = "not a valid name of a variable"
                    raise UserError(message, see="site-configuration")
                yield EnvEntry(name, expand(text, self._scope), origin)
            except UserError as error:
                self._fault(origin, error)

    def checks(self, written: tuple[ListedCheck, ...]) -> Iterator[Run]:
        """Yield the checks with their strings as they are, which may be shell lines."""
        for index, check in enumerate(written):
            origin = self._origin(f"checks[{index}]")
            for key, message in faults(check):
                self._fault(origin, UserError(f"{key}: {message}", see="site-configuration"))
            yield Run(**check.model_dump(), origin=str(origin))

    def _origin(self, key: str) -> SiteOrigin:
        return SiteOrigin(self._config.origins[key], 0, key)

    def _fault(self, origin: SiteOrigin, error: UserError) -> None:
        faults = error.faults if isinstance(error, ExpandError) else [(error.message, error.hint)]
        self.faults += [Fault(origin.file, *fault, origin.key) for fault in faults]


class SiteContext(NamedTuple):
    """The site's settings, its hooks, and the nodes' machine (uname -m).

    `entries` lists a directory of the submit host, `adding` has, by the name of a hook, what asks
    its code for further parameters, and `asked` checks whether an OCI hook of the site runs for an
    annotation. `wide` applies to every environment; `config` tells where settings come from.
    `refused` returns why the site's policy refuses a mount, "" if it does not.
    """

    site: SiteConfig
    hooks: Mapping[str, Hook]
    machine: str
    entries: Entries
    wide: Sitewide
    config: Configuration
    adding: Mapping[str, Callable[[HookUse], Added]]
    asked: Callable[[str], bool]
    refused: Callable[[Mount], str]

    def lets(self, key: str) -> bool:
        """Check whether an EDF may override `key`."""
        return key in self.site.edf_may_override
