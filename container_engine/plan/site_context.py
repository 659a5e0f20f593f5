"""All that a plan depends on besides EDF and image: what the site has and decides. Pure.

Mounts, devices and variables that it adds to every environment are expanded here. The settings
that an environment may decide instead are below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, get_args

from container_engine.base.errors import UserError
from container_engine.base.run_check import ListedCheck, faults
from container_engine.base.text_layout import did_you_mean, nearest
from container_engine.base.toml_positions import Fault
from container_engine.catalog.load import Hook
from container_engine.edf.entries import parse_device, parse_mount
from container_engine.edf.expand import ExpandError, Scope, expand, pieces
from container_engine.edf.model import Annotation, Device, Edf, EnvEntry, Mount, Origin, Problem
from container_engine.edf.names import CONTAINER_NAME, CONTAINER_SAVE
from container_engine.plan.hooks import Added, Entries
from container_engine.plan.model import HookUse, Run
from container_engine.site.load import Configuration, FaultsError
from container_engine.site.model import BYTES, SIZE, Namespace, SiteConfig


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


# ---- settings that an EDF overrides -----------------------------------------------------------

PREFIX = "com.ce."
_REMEDY = "correct it, or remove the line: 'ce config show' prints the site's values"
NAME_FORM = "NAME[:auto|create|exec|no_exec], a name of letters, digits, '.', '_' and '-'"
_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})(?::(auto|create|exec|no_exec))?")


class _Setting(NamedTuple):
    """The text form of a setting in an annotation; `read` returns None for an invalid value."""

    read: Callable[[str], Any]
    wanted: str


def _one_of(*texts: str) -> _Setting:
    wanted = f"{', '.join(texts[:-1])} or {texts[-1]}"
    return _Setting(lambda text: text if text in texts else None, wanted)


def _switch(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


def _seconds(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text) and float(text) else None


def _size(text: str) -> str | None:
    return text if re.fullmatch(SIZE, text) else None


def _bytes(text: str) -> str | None:
    return text if re.fullmatch(BYTES, text) else None


def _count(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,7}", text) else None


def _time(text: str) -> float | None:
    return 0.0 if text == "0" else _seconds(text)


def read_name(text: str) -> tuple[str, str] | None:
    """Return the name of a container and its mode, None for an invalid text."""
    found = _NAME.fullmatch(text)
    return None if found is None else (found[1], found[2] or "auto")


def _file(text: str) -> str | None:
    return text if text.startswith("/") and not text.endswith("/") else None


def _namespaces(text: str) -> tuple[str, ...] | None:
    given = text.split(",") if text else []
    known = get_args(Namespace)
    return tuple(one for one in known if one in given) if set(given) <= set(known) else None


SETTINGS = {
    "memory_limit": _Setting(_bytes, "a size such as 4g, or nothing for no limit"),
    "pids_limit": _Setting(_count, "a number of processes, or 0 for no limit"),
    "pull": _one_of("age", "always", "missing", "never"),
    "root_remap": _Setting(_switch, "true or false"),
    "scope": _one_of("step", "job", "task"),
    "stage": _one_of("memory", "all", "none"),
    "start": _one_of("crun", "podman"),
    "start_timeout_s": _Setting(_seconds, "a number of seconds"),
    "time_limit_s": _Setting(_time, "a number of seconds, or 0 for no limit"),
    "tmpfs_size": _Setting(_size, "a size such as 16g or 50%"),
    "unshare": _Setting(_namespaces, "net, ipc, uts, pid and sys, with commas between them"),
}
# settings that need a container with processes of its own
LIMITS = ("memory_limit", "pids_limit", "time_limit_s")
# settings that an environment has, but not the site
_OWN = {
    CONTAINER_NAME.removeprefix(PREFIX): _Setting(read_name, NAME_FORM),
    CONTAINER_SAVE.removeprefix(PREFIX): _Setting(_file, "the absolute path of a file"),
}


class Chosen(NamedTuple):
    """The effective value of a setting, and where it was written."""

    value: Any
    origin: str


def choose(name: str, edf: Edf, site_context: SiteContext) -> Chosen:
    """Return the value of the setting `name` from the EDF's annotation, else from the site."""
    for entry in edf.annotations:
        if entry.key == PREFIX + name:
            return Chosen(SETTINGS[name].read(entry.value), str(entry.origin))
    return Chosen(getattr(site_context.site, name), site_context.config.origin(name))


def settings_problems(edf: Edf, site_context: SiteContext) -> list[Problem]:
    """Return invalid values, unknown names, and overrides that the site refuses, by line."""
    found = [*annotation_problems(edf.annotations, site_context), *_refused(edf, site_context)]
    return sorted(found, key=lambda problem: problem.line)


def annotation_problems(
    entries: Iterable[Annotation], site_context: SiteContext
) -> Iterator[Problem]:
    """Yield the problems of settings in annotations. The EDF may have other errors."""
    for entry in entries:
        if not entry.key.startswith(PREFIX):
            continue
        name = entry.key.removeprefix(PREFIX)
        own, known = _OWN.get(name), (*SETTINGS, *_OWN)
        setting, key = SETTINGS.get(name) or own, f"annotations.{entry.key}"
        if setting is None:
            suggestion = did_you_mean(nearest(name, known), PREFIX)
            message = f"unknown annotation '{entry.key}'{suggestion}"
            hint = f"choose from {', '.join(PREFIX + one for one in sorted(known))}"
            # a limit that is misspelled must not be a limit that does not hold
            yield entry.origin.error("", message, hint, "edf-annotation")
        elif setting.read(entry.value) is None:
            message = f"expected {setting.wanted}, found '{entry.value}'"
            yield entry.origin.error(key, message, _REMEDY, "edf-annotation")
        elif (
            own is None
            and setting.read(entry.value) != getattr(site_context.site, name)
            and not site_context.lets(name)
        ):
            yield _refusal(key, entry.origin, name, site_context)


def _refused(edf: Edf, site_context: SiteContext) -> Iterator[Problem]:
    origin = edf.entrypoint_origin
    differs = edf.entrypoint is not None and edf.entrypoint != site_context.site.entrypoint
    if differs and origin is not None and not site_context.lets("entrypoint"):
        yield _refusal("entrypoint", origin, "entrypoint", site_context)
    if not site_context.lets("mounts"):
        kept = [str(mount.target) for mount in site_context.wide.mounts]
        for mount in edf.mounts:
            above = f"{mount.target}/"
            if any(f"{target}/".startswith(above) for target in kept):
                yield _refusal("mounts", mount.origin, "mounts", site_context)
    if not site_context.lets("env"):
        fixed = {entry.name: entry.value for entry in site_context.wide.env}
        for entry in edf.env:
            if entry.name in fixed and entry.value != fixed[entry.name]:
                yield _refusal(f"env.{entry.name}", entry.origin, "env", site_context)


def _refusal(key: str, origin: Origin, name: str, site_context: SiteContext) -> Problem:
    place = site_context.config.place("edf_may_override")
    message = f"the site decides this: '{name}' is not in edf_may_override ({place})"
    written = "line" if origin.line else "option"
    hint = f"remove the {written}; 'ce config show' prints the values in effect"
    return origin.error(key, message, hint, "site-decides")
