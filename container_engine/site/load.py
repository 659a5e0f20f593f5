"""Reads the site's configuration: config.toml, then conf.d/*.toml; later files win."""

from __future__ import annotations

import errno
import os
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

from container_engine import ownership
from container_engine.model import MisfitError
from container_engine.process import reason
from container_engine.site.model import SiteConfig
from container_engine.validation_text import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM_DIRECTORY = "/etc/container-engine"
MAIN, DROP_INS = "config.toml", "conf.d"
# Arrays of these keys are joined across files, and tables merged key by key. For all other keys
# the value of the last file counts.
_APPENDED = ("devices", "devices_if_there", "mounts")


class Configuration(NamedTuple):
    """The effective settings, and where they were written.

    `origins` maps each key set in a file to that file, with one entry per item of a joined array
    ("mounts[1]") and per key of a table ("env.NAME"). `files` were read in this order; `probed`
    are all paths examined, existing or not. A value with a fault is left out of the settings.
    """

    settings: SiteConfig
    origins: Mapping[str, str]
    files: tuple[str, ...]
    probed: tuple[str, ...]
    faults: tuple[Fault, ...] = ()

    def origin(self, key: str) -> str:
        """Return the origin of a key, as plans and messages show it."""
        file = self.origins.get(key)
        return f"site: {file}:{key}" if file else "default"

    def place(self, key: str) -> str:
        """Return FILE:LINE of a key, for an error."""
        from container_engine.toml_positions import place_of

        file = self.origins.get(key)
        return place_of(file, tuple(key.split("."))) if file else "the site's configuration"


def directories(prefix: str) -> tuple[str, ...]:
    """Return the possible directories for an installation below `prefix`.

    Only the first that contains any file counts.
    """
    return (f"{prefix}/etc/container-engine", SYSTEM_DIRECTORY)


def load(prefix: str, uid: int, file: str | None = None) -> Configuration:
    """Return the site's configuration, or that of `file` alone.

    Root, `uid` or the owner of the engine's code must own every file, and nobody else may write
    it. Raises SiteError with every fault and its line, in one line.
    """
    found = read(prefix, uid, file)
    if found.faults:
        from container_engine.site.lines import FaultsError

        raise FaultsError(found.faults, found.origins)
    return found


def read(prefix: str, uid: int, file: str | None = None) -> Configuration:
    """Read as `load` does, but return the faults instead of raising SiteError."""
    probed: list[str] = []
    faults: list[Fault] = []
    files = [file] if file else _files(prefix, uid, probed, faults)
    merged = _Merged()
    for path in files:
        content = _content(path, uid, faults)
        if content is not None:
            merged.add(path, content, faults)
    settings = SiteConfig.of(merged.values)
    probed.extend(files)
    return Configuration(settings, merged.origins, tuple(files), tuple(probed), tuple(faults))


def _files(prefix: str, uid: int, probed: list[str], faults: list[Fault]) -> list[str]:
    for directory in directories(prefix):
        main, drop_ins = f"{directory}/{MAIN}", f"{directory}/{DROP_INS}"
        probed += [main, drop_ins]
        try:
            names = sorted(os.listdir(drop_ins))
            _check_owner(drop_ins, os.stat(drop_ins), uid, faults)
        except OSError as error:
            names = []
            if error.errno != errno.ENOENT:
                faults.append(Fault(drop_ins, reason(error)))
        files = [main] if _is_there(main, faults) else []
        files += [
            f"{drop_ins}/{name}"
            for name in names
            if name.endswith(".toml") and not name.startswith(".")
        ]
        if files:
            return files
    return []


def _is_there(path: str, faults: list[Fault]) -> bool:
    """Check whether a file exists; any error but its absence is a fault.

    An unreachable file system must not look like a site without rules.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        faults.append(Fault(path, reason(error)))
        return False
    return True


def _content(path: str, uid: int, faults: list[Fault]) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            if not _check_owner(path, os.fstat(file.fileno()), uid, faults):
                return None
            return tomllib.load(file)
    except OSError as error:
        faults.append(Fault(path, reason(error)))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.append(Fault(path, f"not valid TOML: {error}"))
    return None


def _check_owner(path: str, status: os.stat_result, uid: int, faults: list[Fault]) -> bool:
    # The owner of the engine's code has as much power anyway. In a container's user namespace,
    # where root's files appear as nobody's, this check is what accepts the installation.
    found = ownership.fault(path, status, {uid, *ownership.of_engine()})
    if found:
        faults.append(Fault(path, *found[1:]))
    return not found


class _Merged:
    """The content of the files so far, merged."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}

    def add(self, path: str, content: dict[str, Any], faults: list[Fault]) -> None:
        """Merge one file; keys with a fault are left out and added to `faults`."""
        for key, value in content.items():
            problems = _problems(path, key, value)
            faults.extend(problems)
            if problems:
                continue
            if key in _APPENDED:
                items = self.values.setdefault(key, [])
                self.origins |= {f"{key}[{len(items) + i}]": path for i in range(len(value))}
                items.extend(value)
            elif isinstance(value, dict):
                self.values.setdefault(key, {}).update(value)
                self.origins |= {f"{key}.{name}": path for name in value}
            else:
                self.values[key] = value
                self.origins[key] = path


def _problems(path: str, key: str, value: object) -> list[Fault]:
    try:
        SiteConfig.of({key: value})
    except MisfitError as error:
        return [
            Fault(path, misfit.message, misfit.example or _top_level(misfit.message), misfit.key)
            for misfit in error.misfits
        ]
    return []


def _top_level(message: str) -> str | None:
    """Return a hint for an unknown key of a table that the top level has."""
    name = message.partition("unknown key '")[2].partition("'")[0].rpartition(".")[2]
    if f".{name}'" not in message or name not in SiteConfig.__struct_fields__:
        return None
    return "it is a key of the top level: write it above the first [table]"
