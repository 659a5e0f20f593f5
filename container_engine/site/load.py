"""Reads the site's configuration; later files win.

They are config.toml, conf.d/*.toml and, for the cluster of this host, clusters.d/CLUSTER.toml. A
fault gets its line by reading its file again, so that only a launch with a fault pays for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from container_engine.base import slurm
from container_engine.base.errors import SiteError, UserError
from container_engine.base.files import of_engine, owner_fault
from container_engine.base.process import reason
from container_engine.base.records import from_table
from container_engine.base.toml_positions import Fault, Positions, place_of
from container_engine.site.places import READ_ON_NODES, Places

if TYPE_CHECKING:
    from container_engine.site.model import SiteConfig

SYSTEM_DIRECTORY = "/etc/container-engine"
MAIN, DROP_INS, CLUSTERS = "config.toml", "conf.d", "clusters.d"
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
_TOML = 'a line is KEY = "TEXT", KEY = ["TEXT", "TEXT"], KEY = true or KEY = 60'
# Arrays of these keys are joined across files, and tables merged key by key. For all other keys
# the value of the last file counts.
_APPENDED = ("checks", "devices", "devices_if_there", "mounts")
_UNKNOWN = re.compile(r"unknown key '([^']+)'")
_OF_TOML = re.compile(r"\(at line (\d+), column")
_INDEX = re.compile(r"(.*)\[(\d+)\]$")


class Configuration(NamedTuple):
    """The effective settings, and where they were written.

    `origins` maps each key set in a file to that file, with one entry per item of a joined array
    ("mounts[1]") and per key of a table ("env.NAME"). `files` were read in this order; `probed`
    are all paths examined, existing or not; `variables` are the names of the environment variables
    on which the result depends. A value with a fault is left out of the settings.
    """

    settings: SiteConfig
    origins: Mapping[str, str]
    files: tuple[str, ...]
    probed: tuple[str, ...]
    faults: tuple[Fault, ...] = ()
    variables: tuple[str, ...] = ()

    def origin(self, key: str) -> str:
        """Return the origin of a key, as plans and messages show it."""
        file = self.origins.get(key)
        return f"site: {file}:{key}" if file else "default"

    def place(self, key: str) -> str:
        """Return FILE:LINE of a key, for an error; without a line if no file sets the key."""
        file = self.origins.get(key)
        return place_of(file, tuple(key.split("."))) if file else "the site's configuration"


def directories(prefix: str) -> tuple[str, ...]:
    """Return the possible directories for an installation below `prefix`.

    Only the first that contains any file counts.
    """
    return (f"{prefix}/etc/container-engine", SYSTEM_DIRECTORY)


def load(
    prefix: str, uid: int, file: str | None = None, env: Mapping[str, str] = NO_VARIABLES
) -> Configuration:
    """Return the site's configuration, or that of `file` alone; `env` leads to slurm.conf.

    Root, `uid` or the owner of the engine's code must own every file, and nobody else may write
    it. Raise SiteError with every fault and its line, in one line.
    """
    found = read(prefix, uid, file, env)
    if found.faults:
        raise FaultsError(found.faults, found.origins)
    return found


def read(
    prefix: str, uid: int, file: str | None = None, env: Mapping[str, str] = NO_VARIABLES
) -> Configuration:
    """Read as `load` does, but return the faults instead of raising SiteError."""
    from container_engine.site.model import SiteConfig

    reader = _Reader(uid, env)
    files = [file] if file else reader.files(prefix)
    for path in files:
        reader.merge(path)
    return Configuration(
        SiteConfig.of(reader.values),
        reader.origins,
        tuple(files),
        (*reader.probed, *files),
        tuple(reader.faults),
        tuple(reader.variables),
    )


def places(prefix: str, uid: int, file: str | None, env: Mapping[str, str]) -> Places | None:
    """Return where things are, without the model; None if a file, or one of these, has a fault."""
    reader = _Reader(uid, env)
    for path in [file] if file else reader.files(prefix):
        found = reader.content(path)
        for key in found.keys() & set(Places._fields):
            reader.values[key] = found[key]
            reader.faults += _of_nodes(path, key, found[key])
    with contextlib.suppress(ValueError):
        return None if reader.faults else from_table(Places, reader.values)
    return None


def of_clusters(files: Sequence[str]) -> list[str]:
    """Return the files of all clusters, which are in clusters.d of the configuration's directory.

    `files` are those of the configuration; if there are none, clusters have none either.
    """
    return _in_clusters(_above(files), []) if files else []


def _above(files: Sequence[str]) -> str:
    """Return the directory of a configuration whose only files may be in conf.d."""
    return os.path.dirname(files[0]).removesuffix(f"/{DROP_INS}")


def _in_clusters(directory: str, faults: list[Fault]) -> list[str]:
    """Return the files of all clusters; any error but their absence is a fault."""
    clusters = f"{directory}/{CLUSTERS}"
    try:
        names = sorted(os.listdir(clusters))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        faults.append(Fault(clusters, reason(error)))
        return []
    return [f"{clusters}/{name}" for name in names if name.endswith(".toml")]


class _Reader:
    """A reader that merges the files, and collects their faults and all that it has consulted."""

    def __init__(self, uid: int, env: Mapping[str, str]) -> None:
        self._uid = uid
        self._env = env
        self.probed: list[str] = []
        self.variables: list[str] = []
        self.faults: list[Fault] = []
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}

    def files(self, prefix: str) -> list[str]:
        """Return the files of an installation below `prefix`, that of this cluster last."""
        for directory in directories(prefix):
            main, drop_ins = f"{directory}/{MAIN}", f"{directory}/{DROP_INS}"
            self.probed += [main, drop_ins, f"{directory}/{CLUSTERS}"]
            try:
                names = sorted(os.listdir(drop_ins))
                self._check_owner(drop_ins, os.stat(drop_ins))
            except OSError as error:
                names = []
                if error.errno != errno.ENOENT:
                    self.faults.append(Fault(drop_ins, reason(error)))
            files = [main] if self._is_there(main) else []
            files += [
                f"{drop_ins}/{name}"
                for name in names
                if name.endswith(".toml") and not name.startswith(".")
            ]
            if files:
                return files + self._of_cluster(files)
            for path in _in_clusters(directory, self.faults):
                hint = f"an empty {main} will do"
                self.faults.append(Fault(path, f"has no {MAIN} above it", hint))
        return []

    def _is_there(self, path: str) -> bool:
        """Check whether a file exists; any error but its absence is a fault.

        An unreachable file system must not look like a site without rules.
        """
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            self.faults.append(Fault(path, reason(error)))
            return False
        return True

    def _of_cluster(self, files: Sequence[str]) -> list[str]:
        """Return the file of this host's cluster if there is one."""
        every = _in_clusters(_above(files), self.faults)
        if not every:
            return []
        directory = os.path.dirname(every[0])
        self._check_owner(directory, os.stat(directory))
        self.variables.append("SLURM_CONF")
        self.probed.extend(slurm.conf_places(self._env))
        found = slurm.find_conf(self._env)
        name = slurm.conf_value(found, "ClusterName", self.probed) if found else ""
        if not name:
            why = (
                "cannot tell which of these applies: this host has no slurm.conf with a ClusterName"
            )
            hint = "set SLURM_CONF to the path of slurm.conf if it is elsewhere"
            self.faults.append(Fault(directory, why, hint))
        file = f"{directory}/{name.lower()}.toml"
        return [file] if file in every else []

    def merge(self, path: str) -> None:
        """Merge one file; keys with a fault are left out."""
        for key, value in self.content(path).items():
            problems = _problems(path, key, value) or _of_nodes(path, key, value)
            self.faults.extend(problems)
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

    def content(self, path: str) -> dict[str, Any]:
        """Return a file's content, {} after a fault."""
        try:
            with open(path, "rb") as file:
                if self._check_owner(path, os.fstat(file.fileno())):
                    return tomllib.load(file)
        except PermissionError as error:
            hint = f"users must be able to read it: chmod a+r {path}"
            self.faults.append(Fault(path, reason(error), hint))
        except OSError as error:
            self.faults.append(Fault(path, reason(error)))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            self.faults.append(Fault(path, f"not valid TOML: {error}", _TOML))
        return {}

    def _check_owner(self, path: str, status: os.stat_result) -> bool:
        # The owner of the engine's code has as much power anyway. In a container's user namespace,
        # where root's files appear as nobody's, this check is what accepts the installation.
        found = owner_fault(path, status, {self._uid, *of_engine()})
        if found:
            self.faults.append(Fault(path, *found[1:]))
        return not found


def _of_nodes(path: str, key: str, value: object) -> list[Fault]:
    """Return a fault for each key of a cluster's file that nodes read from other files only."""
    if os.path.basename(os.path.dirname(path)) != CLUSTERS:
        return []
    keys = [f"{key}.{name}" for name in value] if isinstance(value, dict) else [key]
    why = "nodes read this key again, in config.toml and conf.d only: write it there"
    return [Fault(path, why, key=one) for one in keys if one in READ_ON_NODES]


def _problems(path: str, key: str, value: object) -> list[Fault]:
    from container_engine.base.model import MisfitError
    from container_engine.site.model import SiteConfig

    try:
        SiteConfig.of({key: value})
    except MisfitError as error:
        return [
            Fault(path, misfit.message, misfit.example or _of_unknown(misfit.message), misfit.key)
            for misfit in error.misfits
        ]
    return []


def _of_unknown(message: str) -> str | None:
    """Return a hint for an unknown key, unless the message suggests another one."""
    from container_engine.site.model import SiteConfig

    name = message.partition("unknown key '")[2].partition("'")[0].rpartition(".")[2]
    if f".{name}'" in message and name in SiteConfig.model_fields:
        return "it is a key of the top level: write it above the first [table]"
    is_alone = name != "" and message.endswith(f"{name}'") and "did you mean" not in message
    return "'ce config show' prints all keys that there are" if is_alone else None


class FaultsError(SiteError):
    """Files of the site with `faults`; the message has all of them, with their lines."""

    def __init__(self, faults: Sequence[Fault], origins: Mapping[str, str]) -> None:
        self.faults = tuple(faults)
        hint = next((fault.hint for fault in faults if fault.hint), None)
        text = "; ".join(located(fault, origins) for fault in faults)
        super().__init__(text, hint, "site-configuration")


def located(fault: Fault, origins: Mapping[str, str]) -> str:
    """Return the fault in one line that begins with FILE:LINE, or with FILE if none is known.

    `origins` are those of the `Configuration`.
    """
    number = line_of(fault, origins)
    if not number:
        return str(fault)
    message = _OF_TOML.sub("(at column", fault.message)
    return str(fault._replace(file=f"{fault.file}:{number}", message=message))


def line_of(fault: Fault, origins: Mapping[str, str]) -> int:
    """Return the line of the fault's key, or 0 if none is known."""
    is_merged = origins.get(fault.key) == fault.file
    key = _in_its_file(fault.key, origins) if is_merged else fault.key
    return _line(fault.file, key, fault.message)


def _line(file: str, key: str, message: str) -> int:
    """Return the line of a key, as faults name it, or 0 if none is known.

    An unknown key is named by the `message` instead. Items of arrays are counted within the file.
    """
    if (of_toml := _OF_TOML.search(message)) is not None:
        return int(of_toml[1])
    unknown = _UNKNOWN.match(message)
    key = key or (unknown[1] if unknown else "")
    if not key:
        return 0
    try:
        with open(file, encoding="utf-8") as opened:
            positions = Positions(opened.read())
    except (OSError, ValueError, UserError):
        return 0
    return positions.line(_path(key))


def _in_its_file(key: str, origins: Mapping[str, str]) -> str:
    """Return a key with its index in its own file: mounts[0] for mounts[2] if it is the first."""
    found = _INDEX.match(key)
    if found is None or key not in origins:
        return key
    name, number = found[1], int(found[2])
    before = sum(origins.get(f"{name}[{i}]") == origins[key] for i in range(number))
    return f"{name}[{before}]"


def _path(key: str) -> tuple[str | int, ...]:
    path: list[str | int] = []
    while key:
        part, _dot, key = key.partition(".")
        path += [part.partition("[")[0], *map(int, re.findall(r"\[(\d+)\]", part))]
        if part == "env" and key:
            # the name of a variable may have dots, the names of keys have none
            return (*path, key)
    return tuple(path)
