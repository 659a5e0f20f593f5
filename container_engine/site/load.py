"""The files of the site's configuration: config.toml, then conf.d/*.toml, the later winning."""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from container_engine.errors import SiteError
from container_engine.process import reason
from container_engine.site.model import SiteConfig
from container_engine.validation_text import misfits

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM_DIRECTORY = "/etc/container-engine"
MAIN, DROP_INS = "config.toml", "conf.d"
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
# what several files add up to, as do tables, key by key; of all else the last file's value counts
_APPENDED = ("devices", "devices_if_there", "mounts")


class Fault(NamedTuple):
    """What is wrong with a file. `key` is "" where that is not about one."""

    file: str
    key: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.key, self.message) if part)


class Configuration(NamedTuple):
    """The settings that count, and where they were written.

    `origins` has the file of each key that a file has; of an array that several files add to, of
    each item ("mounts[1]"), and of each variable ("env.NAME"). `files` were read, in this order;
    `probed` are all paths that were looked at, existing or not. Of keys with a fault the settings
    have the default.
    """

    settings: SiteConfig
    origins: Mapping[str, str]
    files: tuple[str, ...]
    probed: tuple[str, ...]
    faults: tuple[Fault, ...] = ()

    def origin(self, key: str) -> str:
        """As plans and messages name it."""
        file = self.origins.get(key)
        return f"site: {file}:{key}" if file else "default"


def directories(prefix: str) -> tuple[str, ...]:
    """Where the files may lie for an installation below `prefix`; the first with any counts."""
    return (f"{prefix}/etc/container-engine", SYSTEM_DIRECTORY)


def load(prefix: str, uid: int, file: str | None = None) -> Configuration:
    """The site's configuration, or what `file` alone says.

    Root or `uid` must own every file, and nobody else may write it. Raises SiteError with every
    fault, in one line.
    """
    found = read(prefix, uid, file)
    if found.faults:
        message = "; ".join(map(str, found.faults))
        raise SiteError(message, found.faults[0].hint, "site-configuration")
    return found


def read(prefix: str, uid: int, file: str | None = None) -> Configuration:
    """Like `load`, but faults are part of what is returned."""
    probed: list[str] = []
    faults: list[Fault] = []
    files = [file] if file else _files(prefix, uid, probed, faults)
    merged = _Merged()
    for path in files:
        content = _content(path, uid, faults)
        if content is not None:
            merged.add(path, content, faults)
    settings = SiteConfig.model_validate(merged.values)
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
                faults.append(Fault(drop_ins, "", reason(error)))
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
    """A file system that is away must not look like a site without rules."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        faults.append(Fault(path, "", reason(error)))
        return False
    return True


def _content(path: str, uid: int, faults: list[Fault]) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            if not _check_owner(path, os.fstat(file.fileno()), uid, faults):
                return None
            return tomllib.load(file)
    except OSError as error:
        faults.append(Fault(path, "", reason(error)))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.append(Fault(path, "", f"not valid TOML: {error}"))
    return None


def _check_owner(path: str, status: os.stat_result, uid: int, faults: list[Fault]) -> bool:
    # who owns the engine's code decides as much; in a container's user namespace, where root's
    # files appear as nobody's, that is how the installation is known
    if status.st_uid not in (0, uid, os.stat(__file__).st_uid):
        hint = f"chown root {path}"
        faults.append(Fault(path, "", f"owned by user {status.st_uid}, not by root", hint))
    elif status.st_mode & _OTHERS_MAY_WRITE:
        faults.append(Fault(path, "", "others than its owner may write it", f"chmod go-w {path}"))
    else:
        return True
    return False


class _Merged:
    """What the files so far say together."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}

    def add(self, path: str, content: dict[str, Any], faults: list[Fault]) -> None:
        """Adds one file; what is wrong in it goes to `faults` and is left out."""
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
        SiteConfig.model_validate({key: value})
    except ValidationError as error:
        return [Fault(path, *misfit) for misfit in misfits(SiteConfig, error)]
    return []
